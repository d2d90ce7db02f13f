//! `symseal verify-bundle`: a Sigstore bundle that somebody made, as Sigstore's client specification says.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde_json::json;
use symseal_seal::Hash;
use symseal_seal::encoding::to_hex;
use symseal_sealer::foreign::{
    BUNDLE_LIMIT, ForeignArtifact, ForeignFacts, ForeignKey, ForeignRoot, ForeignSigner, ROOT_LIMIT, Refusal,
    verify_foreign,
};

use super::bundle::verify::read_at_most;
use crate::exit::Answer;
use crate::output::{outln, visible};
use crate::table::Table;

/// Verify any Sigstore bundle (v0.1 to v0.3), offline, as the Sigstore client specification says.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal verify-bundle --bundle app.sigstore.json --key cosign.pub --trusted-root trusted_root.json app
  symseal verify-bundle --bundle app.sigstore.json --certificate-identity dev@example.org \\
      --certificate-oidc-issuer https://accounts.google.com app
  symseal verify-bundle --bundle app.sigstore.json --key cosign.pub sha256:9f86d081…

Signatures over the file and attestations (DSSE) about it, by a certificate or a key, in a Rekor v1 or v2. No network is used: without --trusted-root, Sigstore's public-good root counts, as it was when this program was built; keys that Sigstore took into use later need --trusted-root. For symseal's own bundles there is `symseal bundle verify`, which also asks who may sign which name.

Exit status 1: refused; the output names the check. The checks stand in docs/provenance.md.")]
pub struct Args {
    /// The Sigstore bundle.
    #[arg(long, value_name = "FILE")]
    bundle: PathBuf,
    /// The signer's public key (PEM).
    #[arg(long, value_name = "PEM", required_unless_present = "certificate_identity", conflicts_with_all = ["certificate_identity", "certificate_oidc_issuer"])]
    key: Option<PathBuf>,
    /// The identity that the signer's certificate is for, exactly: an address or a URI.
    #[arg(long, value_name = "IDENTITY", requires = "certificate_oidc_issuer")]
    certificate_identity: Option<String>,
    /// The OIDC issuer that identified the signer, exactly.
    #[arg(long, value_name = "URL", requires = "certificate_identity")]
    certificate_oidc_issuer: Option<String>,
    /// Whom to trust (a trusted_root.json), instead of the root of Sigstore's public-good instance that is built in.
    #[arg(long, value_name = "FILE")]
    trusted_root: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// The signed file, or its digest.
    #[arg(value_name = "FILE|sha256:HEX")]
    artifact: String,
}

pub fn run(args: &Args) -> Result<Answer> {
    let bundle = read_at_most("bundle", &args.bundle, BUNDLE_LIMIT)?;
    let root = match &args.trusted_root {
        None => ForeignRoot::public_good()?,
        Some(path) => ForeignRoot::parse(&read_at_most("trusted root", path, ROOT_LIMIT)?)
            .with_context(|| format!("trusted root {}", path.display()))?,
    };
    let signer = match (&args.key, &args.certificate_identity, &args.certificate_oidc_issuer) {
        (Some(path), ..) => ForeignSigner::Key(key(path)?),
        (None, Some(identity), Some(issuer)) => {
            ForeignSigner::Certificate { identity: identity.clone(), issuer: issuer.clone() }
        }
        _ => bail!("expected --key, or --certificate-identity and --certificate-oidc-issuer"),
    };
    let answer = match digest(&args.artifact) {
        Some(sha256) => verify_foreign(&bundle, ForeignArtifact::Sha256(sha256), &signer, &root),
        None => {
            if args.artifact.starts_with("sha256:") && !Path::new(&args.artifact).exists() {
                bail!("{}: expected sha256: and 64 hexadecimal digits, or a file", args.artifact);
            }
            let what = || format!("file {}", args.artifact);
            let mut file = File::open(&args.artifact).with_context(what)?;
            if !file.metadata().with_context(what)?.is_file() {
                bail!("{}: expected a file", what());
            }
            verify_foreign(&bundle, ForeignArtifact::File(&mut file), &signer, &root)
        }
    };
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report(&answer, &signer, args))?);
    } else {
        print(&answer, &signer, args);
    }
    Ok(answer.is_ok().into())
}

fn key(path: &Path) -> Result<ForeignKey> {
    let what = || format!("key {}", path.display());
    let pem = String::from_utf8(read_at_most("key", path, 64 << 10)?).with_context(what)?;
    ForeignKey::parse(&pem).with_context(what)
}

/// `sha256:` and 64 hexadecimal digits; anything else, and what is a file of that name, is a file.
fn digest(text: &str) -> Option<Hash> {
    let hex = text.strip_prefix("sha256:").filter(|_| !Path::new(text).exists())?;
    if hex.len() != 64 || !hex.is_ascii() {
        return None;
    }
    let mut sha256 = [0; 32];
    for (byte, pair) in sha256.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(sha256)
}

fn root_name(args: &Args) -> String {
    let built_in = || "Sigstore's public-good root, built in".to_owned();
    args.trusted_root.as_ref().map_or_else(built_in, |path| path.display().to_string())
}

fn report(answer: &Result<ForeignFacts, Refusal>, signer: &ForeignSigner, args: &Args) -> serde_json::Value {
    let mut report = json!({
        "verdict": if answer.is_ok() { "verified" } else { "refused" },
        "artifact": args.artifact,
        "trusted_root": root_name(args),
    });
    match answer {
        Err(refusal) => {
            report["check"] = refusal.check.into();
            report["expected"] = refusal.expected.as_str().into();
            report["found"] = refusal.found.as_str().into();
        }
        Ok(facts) => {
            report["media_type"] = facts.media_type.as_str().into();
            report["content"] = content(facts).into();
            report["predicate_type"] = facts.predicate_type.as_deref().into();
            report["signer"] = match signer {
                ForeignSigner::Key(key) => json!({ "key_sha256": to_hex(&key.sha256()) }),
                ForeignSigner::Certificate { .. } => json!({ "identity": facts.identity, "issuer": facts.issuer }),
            };
            let entry = |(log, index): &(String, u64)| json!({ "log": log, "index": index });
            report["log_entries"] = facts.entries.iter().map(entry).collect();
            report["signed_at"] = facts.times.iter().map(|time| json!(time.to_string())).collect();
        }
    }
    report
}

fn content(facts: &ForeignFacts) -> &'static str {
    if facts.dsse { "attestation" } else { "signature" }
}

fn print(answer: &Result<ForeignFacts, Refusal>, signer: &ForeignSigner, args: &Args) {
    let facts = match answer {
        Err(refusal) => {
            let Refusal { check, expected, found } = refusal;
            outln!("REFUSED by the check {check}: expected: {}; found: {}", visible(expected), visible(found));
            return;
        }
        Ok(facts) => facts,
    };
    let mut table = Table::new(&["what", "value"]);
    let mut row = |what: &str, value: &str| table.row([what.to_owned(), visible(value)]);
    row("bundle", &facts.media_type);
    row("content", content(facts));
    if let Some(predicate_type) = &facts.predicate_type {
        row("predicate type", predicate_type);
    }
    match signer {
        ForeignSigner::Key(key) => row("key, sha256", &to_hex(&key.sha256())),
        ForeignSigner::Certificate { .. } => {
            row("identity", facts.identity.as_deref().unwrap_or_default());
            row("issuer", facts.issuer.as_deref().unwrap_or_default());
        }
    }
    for (log, index) in &facts.entries {
        row("log entry", &format!("{index} of {log}"));
    }
    for time in &facts.times {
        row("signed at", &time.to_string());
    }
    if facts.times.is_empty() {
        row("signed at", "not known: nobody vouches for a time");
    }
    row("trusted root", &root_name(args));
    crate::output::out!("{table}");
    outln!("\nVERIFIED {}", visible(&args.artifact));
}
