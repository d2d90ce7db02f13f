//! Making seals: keys, signers, the tile log.
