//! Sealing without a key of one's own: what `--fulcio` needs beside it.

use std::io::Read as _;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_builder::{SealOptions, attach_seal, statement};
use symseal_bundle::{Bundle, Digest, LayoutDir, open_plain_file};
use symseal_sealer::RekorVersion;
use symseal_sealer::foreign::{ForeignRoot, ForeignSigner, ROOT_LIMIT};
use symseal_sealer::keyless::{KeylessExpectation, KeylessServices, TOKEN_LIMIT, seal_keyless};
use zeroize::Zeroizing;

/// The environment variable with the identity token, as other clients of Sigstore have it.
const IDENTITY_TOKEN: &str = "SIGSTORE_ID_TOKEN";

/// Who certifies a key for this one seal, and who says when.
#[derive(ClapArgs)]
pub(super) struct KeylessArgs {
    /// Seal without a key of one's own: Fulcio's URL. Needs an OIDC token (SIGSTORE_ID_TOKEN) and --log with a Rekor's URL.
    #[arg(long, value_name = "URL", group = "signer", requires_all = ["log", "certificate_identity", "certificate_oidc_issuer"])]
    fulcio: Option<String>,
    /// A file with the OIDC token; default: the variable SIGSTORE_ID_TOKEN.
    #[arg(long, value_name = "FILE", requires = "fulcio")]
    identity_token_file: Option<PathBuf>,
    /// The timestamp authority's URL (RFC 3161); a Rekor v2 needs one.
    #[arg(long, value_name = "URL", requires = "fulcio")]
    timestamp_authority: Option<String>,
    /// The identity that the certificate must name, and that verifiers will ask for.
    #[arg(long, value_name = "IDENTITY", requires = "fulcio")]
    certificate_identity: Option<String>,
    /// The issuer that it must name.
    #[arg(long, value_name = "URL", requires = "fulcio")]
    certificate_oidc_issuer: Option<String>,
    /// Whom to trust when the new seal is verified (a trusted_root.json); default: Sigstore's public-good root, built in.
    #[arg(long, value_name = "FILE", requires = "fulcio")]
    trusted_root: Option<PathBuf>,
}

/// A way to seal without a key.
pub(super) struct Keyless {
    services: KeylessServices,
    token: Zeroizing<String>,
    identity: String,
    signer: ForeignSigner,
    root: ForeignRoot,
}

impl KeylessArgs {
    /// Whether a seal without a key is asked for.
    pub(super) fn is_given(&self) -> bool {
        self.fulcio.is_some()
    }

    /// Reads token and trusted root. Nothing is sent.
    pub(super) fn open(&self, rekor: &str, version: Option<RekorVersion>, limit: NonZeroU64) -> Result<Keyless> {
        let (Some(fulcio), Some(identity), Some(issuer)) =
            (&self.fulcio, &self.certificate_identity, &self.certificate_oidc_issuer)
        else {
            bail!("expected --fulcio with --certificate-identity and --certificate-oidc-issuer");
        };
        let version = version.unwrap_or(RekorVersion::V2);
        if version == RekorVersion::V2 && self.timestamp_authority.is_none() {
            bail!("--log {rekor}: a Rekor v2 says no time, so that a certificate needs --timestamp-authority URL");
        }
        let root = match &self.trusted_root {
            None => ForeignRoot::public_good()?,
            Some(path) => {
                let what = || format!("trusted root {}", path.display());
                ForeignRoot::parse(read(path, ROOT_LIMIT).with_context(what)?.as_bytes()).with_context(what)?
            }
        };
        Ok(Keyless {
            services: KeylessServices {
                fulcio: fulcio.trim_end_matches('/').to_owned(),
                rekor: rekor.to_owned(),
                version,
                timestamp_authority: self.timestamp_authority.clone(),
                limit: Duration::from_secs(limit.get()),
            },
            token: self.token()?,
            identity: identity.clone(),
            signer: ForeignSigner::Certificate { identity: identity.clone(), issuer: issuer.clone() },
            root,
        })
    }

    fn token(&self) -> Result<Zeroizing<String>> {
        match &self.identity_token_file {
            Some(file) => read(file, TOKEN_LIMIT as u64).with_context(|| format!("identity token {}", file.display())),
            None => std::env::var(IDENTITY_TOKEN).map(Zeroizing::new).ok().with_context(|| {
                format!("expected an OIDC token in {IDENTITY_TOKEN} or --identity-token-file, found none")
            }),
        }
    }
}

fn read(path: &Path, limit: u64) -> Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    open_plain_file(path)?.take(limit + 1).read_to_string(&mut text)?;
    if text.len() as u64 > limit {
        bail!("expected at most {limit} bytes, found more");
    }
    Ok(text)
}

impl Keyless {
    /// Who signs, for people.
    pub(super) fn identity(&self) -> String {
        self.identity.clone()
    }

    /// Seals the bundle `digest` of a layout; the digest of the seal's manifest.
    pub(super) fn seal(&self, layout: &LayoutDir, digest: &Digest, options: &SealOptions) -> Result<Digest> {
        let bundle = Bundle::open(layout.clone(), Some(digest))?;
        let expected = KeylessExpectation { signer: &self.signer, root: &self.root };
        let seal = seal_keyless(&statement(&bundle, digest, options)?, &self.services, &self.token, &expected)?;
        Ok(attach_seal(layout, digest, &seal)?)
    }
}
