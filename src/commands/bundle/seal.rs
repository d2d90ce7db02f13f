//! `symseal bundle seal`: sign a bundle and log the signature.

mod judged;
mod keyless;

use std::io::Read as _;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use symseal_builder::{SealOptions, seal_bundle};
use symseal_bundle::{Bundle, Digest, LayoutDir, open_plain_file};
use symseal_seal::LogIdentity;
use symseal_seal::trust::PolicyLog;
use symseal_sealer::{
    ArtifactKey, KeySource, LogKey, LogLocation, PublishedLog, RekorLog, RekorVersion, Signer, TileLog,
    TransparencyLog, WitnessUrl, WitnessedLog, Witnesses, load_trust,
};

use super::verify::now;
use crate::exit::Answer;
use crate::keyring::{self, LOG_KEY, ROOT_KEY, beside};
use crate::output::{outln, visible};
use crate::passphrase::{PassphraseArgs, Passphrases};
use crate::places;
use keyless::{Keyless, KeylessArgs};

/// The environment variable with the token of a log that asks for one.
const LOG_TOKEN: &str = "SYMSEAL_LOG_TOKEN";

/// Sign a bundle and log the signature; the seal becomes a referrer in the same layout.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal bundle seal ./bundle --key ./keys/artifact.key.pem --log ./log
  symseal bundle seal ./bundle --key 'pkcs11:token=release;object=symseal?module-path=/usr/lib/softhsm/libsofthsm2.so' --log ./log --log-key ./keys/log.key.pem
  symseal bundle seal ./bundle --key exec:./sign-with-kms --log rekor-v2+https://rekor.example --trust ./trust
  symseal bundle seal ./bundle --key ./keys/artifact.key.pem --log ./log --trust ./trust \\
      --witness https://witness1.example --witness https://witness2.example/log
  symseal bundle seal ./bundle --fulcio https://fulcio.example --log rekor-v2+https://rekor.example \\
      --timestamp-authority https://tsa.example/api/v1/timestamp --trusted-root trusted_root.json \\
      --certificate-identity release@example.org --certificate-oidc-issuer https://issuer.example

Name and version come from the bundle's index. Prints the digest of the seal's manifest. Where the log fails the bundle
stays unsealed, and trying again is safe. A seal without a key (--fulcio) is verified with `symseal verify-bundle` and by
Sigstore's own clients: a trust directory names keys, so `symseal bundle verify` asks for a seal by one of them.")]
pub struct Args {
    /// The directory with the bundle's OCI layout.
    layout: PathBuf,
    /// The artifact key (ECDSA P-256): a PKCS#8 PEM file (plain, encrypted, or cosign's), pkcs11:URI, or exec:PROGRAM.
    #[arg(long, group = "signer", required_unless_present = "fulcio")]
    key: Option<KeySource>,
    #[command(flatten)]
    sealing: SealingArgs,
    /// The trust directory whose policy pins the key of a Rekor and those of witnesses; default: trust in the user's
    /// configuration directory. Where one is given, a seal that its policy would refuse is warned of.
    #[arg(long)]
    trust: Option<PathBuf>,
}

/// Where the signature is logged, and what the seal says of the release beyond its name and version.
#[derive(ClapArgs)]
pub struct SealingArgs {
    /// The log: a directory (made where there is none), or the URL of a Rekor, rekor-v1+URL and rekor-v2+URL to say which;
    /// default: log in the user's data directory.
    #[arg(long, requires = "signer")]
    log: Option<String>,
    /// The embedded log's key; default: log.key.pem beside the artifact key.
    #[arg(long, requires = "signer")]
    log_key: Option<PathBuf>,
    /// Where checkpoint and tiles of a Rekor v2 are read, if not below its own URL.
    #[arg(long, value_name = "URL", requires = "signer")]
    log_read: Option<String>,
    /// A file with the token of a log that asks for one; default: the variable SYMSEAL_LOG_TOKEN.
    #[arg(long, value_name = "FILE", requires = "signer")]
    log_token_file: Option<PathBuf>,
    /// How long a Rekor may take, and each witness.
    #[arg(long, value_name = "SECONDS", requires = "signer", default_value = "60")]
    log_timeout: NonZeroU64,
    /// A witness (C2SP tlog-witness) that is asked to cosign the checkpoint in the seal. Its key is one of those that the
    /// trust directory names for the log, and as many must answer as its quorum says. Repeat for more.
    #[arg(long = "witness", value_name = "URL", requires = "signer", conflicts_with = "fulcio")]
    witnesses: Vec<WitnessUrl>,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    #[command(flatten)]
    keyless: KeylessArgs,
    /// The channel, such as stable or nightly.
    #[arg(long, requires = "signer")]
    channel: Option<String>,
    /// A number that rises with each release of the channel.
    #[arg(long, requires = "signer")]
    sequence: Option<u64>,
    /// Digest of a bundle that this one replaces. Repeat for more.
    #[arg(long, value_name = "DIGEST", requires = "signer")]
    supersedes: Vec<Digest>,
}

/// A way to seal that was found to be usable, so that a long build does not end at a key.
pub struct Sealer {
    way: Way,
    options: SealOptions,
}

enum Way {
    Key { signer: Box<dyn Signer>, log: Box<Log>, witnesses: Option<Witnesses> },
    Keyless(Box<Keyless>),
}

enum Log {
    /// Opened when something is sealed: it is one writer's at a time.
    Embedded {
        dir: PathBuf,
        key: LogKey,
        key_file: PathBuf,
    },
    Rekor(RekorLog),
}

impl SealingArgs {
    /// Opens the signer and reads the log's key, or the keys that the trust directory pins, and those of witnesses; `None`
    /// where no seal is asked for. Nothing is written or logged.
    pub fn sealer(&self, key: Option<&KeySource>, trust: Option<&PathBuf>) -> Result<Option<Sealer>> {
        let options =
            SealOptions { channel: self.channel.clone(), sequence: self.sequence, supersedes: self.supersedes.clone() };
        let Some(key) = key else {
            let open = || Ok(Sealer { way: Way::Keyless(Box::new(self.keyless()?)), options });
            return self.keyless.is_given().then(open).transpose();
        };
        let passphrases = self.passphrase.source();
        let log = match places::log(self.log.as_deref())? {
            LogLocation::Directory(dir) => self.embedded(dir, key, &passphrases)?,
            LogLocation::Rekor { version, url } => Log::Rekor(self.rekor(&url, version, trust)?),
        };
        let witnesses = (!self.witnesses.is_empty()).then(|| self.witnesses(&log, trust)).transpose()?;
        Sealer::new(key, &passphrases, log, witnesses, options).map(Some)
    }

    /// The witnesses that the trust directory names for the log.
    fn witnesses(&self, log: &Log, trust: Option<&PathBuf>) -> Result<Witnesses> {
        let trust = places::trust_dir(trust)?;
        let named =
            || format!("--witness: the keys of witnesses are taken from the trust directory {}", trust.display());
        let policy = load_trust(&trust).with_context(named)?.policy;
        let valid = policy.logs.into_iter().filter(|log| log.validity.contains(now()));
        let logs: Vec<PolicyLog> = match log {
            Log::Rekor(log) => {
                let identities = log.identities();
                valid.filter(|one| identities.contains(&one.identity)).collect()
            }
            Log::Embedded { dir, key, .. } => {
                if !TileLog::exists(dir) {
                    bail!(
                        "--witness: expected a log in {} that the trust directory names with its witnesses, found no log",
                        dir.display()
                    );
                }
                let published = PublishedLog::open(dir)?;
                let origin = &published.checkpoint().origin;
                valid
                    .filter(|one| one.identity.origin.as_str() == origin)
                    .filter(|one| key.identity(&one.identity.origin).as_ref() == Some(&one.identity))
                    .collect()
            }
        };
        let limit = Duration::from_secs(self.log_timeout.get());
        Witnesses::new(&self.witnesses, &logs, limit).with_context(named)
    }

    fn keyless(&self) -> Result<Keyless> {
        match places::log(self.log.as_deref())? {
            LogLocation::Rekor { version, url } => self.keyless.open(&url, version, self.log_timeout),
            LogLocation::Directory(dir) => {
                bail!(
                    "--log {}: expected the URL of a Rekor for a seal without a key, found a directory",
                    dir.display()
                )
            }
        }
    }

    fn embedded(&self, dir: PathBuf, key: &KeySource, passphrases: &Passphrases<'_>) -> Result<Log> {
        let key_file = match (&self.log_key, key.file()) {
            (Some(file), _) => file.clone(),
            (None, Some(file)) => {
                // A wrong path is told as what it is, and not as a log's key that is not there.
                std::fs::metadata(file).with_context(|| format!("--key {}: cannot read it", file.display()))?;
                beside(file, LOG_KEY)
            }
            (None, None) => {
                bail!("--key {key}: there is no {LOG_KEY} beside it; name the embedded log's key with --log-key")
            }
        };
        let key = LogKey::load(&key_file, &|name| passphrases.ask(name))?;
        Ok(Log::Embedded { dir, key, key_file })
    }

    fn rekor(&self, url: &str, version: Option<RekorVersion>, trust: Option<&PathBuf>) -> Result<RekorLog> {
        let trust = places::trust_dir(trust)?;
        let pinned = load_trust(&trust)
            .with_context(|| format!("--log {url}: its key is taken from a trust directory (--trust)"))?;
        let valid = pinned.policy.logs.iter().filter(|log| log.validity.contains(now()));
        let identities: Vec<LogIdentity> = valid.map(|log| log.identity.clone()).collect();
        let mut log = RekorLog::new(url, version, identities)
            .with_context(|| format!("trust directory {}", trust.display()))?
            .within(Duration::from_secs(self.log_timeout.get()));
        if let Some(url) = &self.log_read {
            log = log.read_at(url);
        }
        match self.log_token()? {
            Some(token) => Ok(log.with_token(token)?),
            None => Ok(log),
        }
    }
}

impl SealingArgs {
    fn log_token(&self) -> Result<Option<String>> {
        let Some(file) = &self.log_token_file else { return Ok(std::env::var(LOG_TOKEN).ok()) };
        let mut text = String::new();
        let read = open_plain_file(file).and_then(|mut opened| opened.read_to_string(&mut text));
        read.with_context(|| format!("--log-token-file {}", file.display()))?;
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("--log-token-file {}: expected one line with a token, found something else", file.display());
        }
        Ok(Some(token.to_owned()))
    }
}

impl Sealer {
    fn new(
        key: &KeySource,
        passphrases: &Passphrases<'_>,
        log: Log,
        witnesses: Option<Witnesses>,
        options: SealOptions,
    ) -> Result<Self> {
        if let Some(file) = key.file() {
            refuse_root_key(file)?;
        }
        let signer = key.open(&|name| passphrases.ask(name))?;
        Ok(Self { way: Way::Key { signer, log: Box::new(log), witnesses }, options })
    }

    /// The artifact key's id, or the identity that seals without one.
    pub fn key_id(&self) -> String {
        match &self.way {
            Way::Key { signer, .. } => signer.public().key_id().to_string(),
            Way::Keyless(keyless) => keyless.identity(),
        }
    }

    /// Whether an artifact key signs, which a policy can name.
    fn has_key(&self) -> bool {
        matches!(self.way, Way::Key { .. })
    }

    /// Seals the bundle `digest` of a layout; the digest of the seal's manifest.
    pub fn seal(&self, layout: &LayoutDir, digest: &Digest) -> Result<Digest> {
        let (signer, log, witnesses) = match &self.way {
            Way::Key { signer, log, witnesses } => (signer, log, witnesses),
            Way::Keyless(keyless) => return keyless.seal(layout, digest, &self.options),
        };
        let mut log: Box<dyn TransparencyLog> = match &**log {
            Log::Embedded { dir, key, key_file } => {
                Box::new(keyring::open_or_create_log_with(dir, key.clone(), key_file)?)
            }
            Log::Rekor(log) => Box::new(log.clone()),
        };
        let Some(witnesses) = witnesses else {
            return Ok(seal_bundle(layout, digest, &**signer, &mut *log, &self.options)?);
        };
        let mut log = WitnessedLog::new(&mut *log, witnesses);
        let sealed = seal_bundle(layout, digest, &**signer, &mut log, &self.options)?;
        for (url, error) in log.failed() {
            eprintln!("warning: witness {url}: {}", visible(&error.to_string()));
        }
        Ok(sealed)
    }
}

/// Refuses the root key: the very file, or one with the same key in the clear.
fn refuse_root_key(key: &Path) -> Result<()> {
    let root = beside(key, ROOT_KEY);
    let plain = |path: &Path| ArtifactKey::load_pem(path).map(|key| key.key_id()).ok();
    let same_file = match (std::fs::canonicalize(key), std::fs::canonicalize(&root)) {
        (Ok(key), Ok(root)) => key == root,
        _ => false,
    };
    if same_file || plain(&root).is_some_and(|root| plain(key) == Some(root)) {
        bail!(
            "key {}: this is the root key, which signs trust directories alone; seal with artifact.key.pem",
            key.display()
        );
    }
    Ok(())
}

pub fn run(args: &Args) -> Result<Answer> {
    // The bundle first: nobody should type a passphrase for one that is not there.
    let bundle = sole_bundle(&args.layout)?;
    let sealer = args.sealing.sealer(args.key.as_ref(), args.trust.as_ref())?;
    let sealer = sealer.context("expected --key or --fulcio")?;
    // Before anything is signed and logged: a directory that cannot be read is found out here.
    let trust =
        args.trust.as_ref().filter(|_| sealer.has_key()).map(|dir| Ok::<_, anyhow::Error>((dir, load_trust(dir)?)));
    let trust = trust.transpose()?;
    let (layout, digest) = (bundle.0.clone(), bundle.1);
    let sealed = seal_one(&args.layout, bundle, &sealer)?;
    outln!("{sealed}");
    if let Some((dir, trust)) = trust {
        for check in judged::refusals(&layout, &digest, &sealed, &trust)? {
            eprintln!("warning: the policy of {} refuses this seal: {}", dir.display(), visible(&check.to_string()));
        }
    }
    Ok(Answer::Yes)
}

/// Seals the one bundle of `layout` with keys in the clear; the digest of the seal's manifest.
pub fn seal(layout: &Path, key: &Path, log: &Path, log_key: &Path, options: &SealOptions) -> Result<Digest> {
    let embedded = Log::Embedded { dir: log.into(), key: LogKey::load_pem(log_key)?, key_file: log_key.into() };
    let nobody = PassphraseArgs::default();
    let sealer = Sealer::new(&KeySource::File(key.into()), &nobody.source(), embedded, None, options.clone())?;
    seal_one(layout, sole_bundle(layout)?, &sealer)
}

/// The one bundle of a layout.
fn sole_bundle(layout: &Path) -> Result<(LayoutDir, Digest)> {
    let named = || format!("bundle {}", layout.display());
    let dir = LayoutDir::open(layout).with_context(named)?;
    let bundle = Bundle::open(dir.clone(), None).with_context(named)?;
    Ok((dir, bundle.digest().with_context(named)?))
}

fn seal_one(layout: &Path, (dir, digest): (LayoutDir, Digest), sealer: &Sealer) -> Result<Digest> {
    sealer.seal(&dir, &digest).with_context(|| format!("bundle {}", layout.display()))
}
