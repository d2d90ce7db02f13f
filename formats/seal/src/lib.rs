//! DSSE, in-toto, log proofs, checkpoints, Sigstore bundles and trust policy: parse and verify.
