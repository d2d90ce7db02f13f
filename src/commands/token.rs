//! `symseal token`: who may read from a server, write to it, and log signatures.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use symseal_seal::{ArtifactPublicKey, KeyId, UtcSeconds};
use symseal_server::tokens::{Grant, NewToken, Prefix, TokenInfo, Tokens};

use crate::commands::bundle::verify::now;
use crate::commands::serve::load_config;
use crate::data_owner::{act_for_maker, act_for_owner};
use crate::exit::{Answer, NotFound};
use crate::output::{outln, visible};
use crate::places;
use crate::table::Table;

#[derive(Subcommand)]
pub enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Where tokens are kept.
#[derive(Args)]
struct Place {
    /// The server's data directory.
    #[arg(long)]
    data: Option<PathBuf>,
    /// The server's configuration, which may name both.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The servers' PostgreSQL, where they have one (postgres://USER@HOST/DATABASE); also from SYMSEAL_SERVER_DATABASE.
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

impl Place {
    /// `may_make`: a data directory that is not there is made; else a mistyped name must not make one.
    async fn open(&self, may_make: bool) -> Result<Tokens> {
        let mut file = load_config(self.config.as_deref())?;
        if let Some(database) = &self.database {
            file.set_database(database.clone());
        }
        let database = file.database()?;
        let data = places::server_data(self.data.as_ref().or(file.data.as_ref()))?;
        if !may_make && database.is_none() && !data.is_dir() {
            bail!("--data {}: expected a server's data directory, found none", data.display());
        }
        match may_make && database.is_none() {
            true => act_for_maker(&data)?,
            false => act_for_owner(&data, database.is_none())?,
        }
        Ok(Tokens::open(&data, database.as_ref()).await?)
    }
}

/// Make a token. It is shown once.
#[derive(Args)]
#[command(after_help = "Examples:
  symseal token create --data ./data --name 'release pipeline' --write team --key ./keys/artifact.pub.pem --expires 2027-01-01T00:00:00Z
  symseal token create --data ./data --name 'debuggers of the team' --read team --read vendor

The token is the only line on standard output. Who holds it shows it as:
  the password of any user's name      docker login, oras login, skopeo login, cosign login
  Authorization: Bearer TOKEN          debuginfod clients, by a line of the file that DEBUGINFOD_HEADERS_FILE names; curl
  http://SERVER/t/TOKEN/…              clients that can send no header, such as WinDbg
  SYMSEAL_LOG_TOKEN=TOKEN              symseal bundle seal --log URL (or --log-token-file)

A data directory that is not there is made; root makes it as whoever the folder above belongs to.
The server may run meanwhile; a new token holds at once. Where the server asks nobody for tokens (access.mode = \"open\"),
the log and the audit log still do.")]
pub struct CreateArgs {
    #[command(flatten)]
    place: Place,
    /// Whose token it is, in your words.
    #[arg(long)]
    name: String,
    /// It may read this repository and those below it, and the symbols in them; *: all. Repeat for more.
    #[arg(long, value_name = "PREFIX")]
    read: Vec<Prefix>,
    /// It may push to them and delete from them, too. Repeat for more.
    #[arg(long, value_name = "PREFIX")]
    write: Vec<Prefix>,
    /// More that it may do: traces:read, traces:write, audit:read. Repeat for more.
    #[arg(long, value_name = "GRANT")]
    grant: Vec<Grant>,
    /// It may log signatures of this artifact key: the key's public half (PEM). Repeat for more.
    #[arg(long = "key")]
    keys: Vec<PathBuf>,
    /// From when on it no longer holds, such as 2027-01-01T00:00:00Z; default: never.
    #[arg(long)]
    expires: Option<UtcSeconds>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

/// List the tokens, also those that no longer hold.
#[derive(Args)]
#[command(after_help = "Example:\n  symseal token list --data ./data")]
pub struct ListArgs {
    #[command(flatten)]
    place: Place,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

/// Revoke a token: servers that run take it for two seconds more at most.
#[derive(Args)]
#[command(after_help = "Example:\n  symseal token revoke --data ./data 93ac61ec7a55")]
pub struct RevokeArgs {
    #[command(flatten)]
    place: Place,
    /// Its id, as `symseal token list` shows it.
    id: String,
}

pub fn run(command: &Command) -> Result<Answer> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime could be started")?;
    runtime.block_on(async {
        match command {
            Command::Create(args) => create(args).await,
            Command::List(args) => list(args).await,
            Command::Revoke(args) => revoke(args).await,
        }
    })
}

async fn create(args: &CreateArgs) -> Result<Answer> {
    if args.expires.is_some_and(|expires| expires <= now()) {
        bail!("--expires {}: expected a time to come", args.expires.map(|time| time.to_string()).unwrap_or_default());
    }
    if args.name.trim().is_empty() || args.name.chars().any(char::is_control) {
        bail!("--name {:?}: expected a name, without control characters", args.name);
    }
    let keys = args.keys.iter().map(key_id).collect::<Result<Vec<KeyId>>>()?;
    let tokens = args.place.open(true).await?;
    let new = NewToken { name: args.name.clone(), created: now(), expires: args.expires, grants: grants(args)?, keys };
    let (secret, token) = tokens.create(new).await?;
    if args.json {
        let mut value = as_json(&token);
        if let Some(object) = value.as_object_mut() {
            object.insert("token".into(), secret.expose().into());
        }
        outln!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        eprintln!("token {}: it is shown this once", token.id);
        outln!("{}", secret.expose());
    }
    Ok(Answer::Yes)
}

/// What the options say together. To log is granted with a key.
fn grants(args: &CreateArgs) -> Result<Vec<Grant>> {
    let read = args.read.iter().cloned().map(Grant::Read);
    let write = args.write.iter().cloned().map(Grant::Write);
    let log = (!args.keys.is_empty()).then_some(Grant::WriteLog);
    let grants: Vec<Grant> = read.chain(write).chain(args.grant.iter().cloned()).chain(log).collect();
    if grants.is_empty() {
        bail!("expected what the token may do: --read PREFIX, --write PREFIX, --grant GRANT or --key FILE");
    }
    if grants.contains(&Grant::WriteLog) && args.keys.is_empty() {
        bail!("--grant {}: expected --key FILE with the key whose signatures it may log", Grant::WriteLog);
    }
    Ok(grants)
}

fn key_id(file: &PathBuf) -> Result<KeyId> {
    let named = || format!("key {}: expected the public half of an ECDSA P-256 key in PEM", file.display());
    let pem = std::fs::read_to_string(file).with_context(named)?;
    Ok(ArtifactPublicKey::from_pem(&pem).with_context(named)?.key_id())
}

async fn list(args: &ListArgs) -> Result<Answer> {
    let tokens = args.place.open(false).await?.list().await?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&tokens.iter().map(as_json).collect::<Vec<_>>())?);
        return Ok(Answer::Yes);
    }
    let mut table = Table::new(&["token", "name", "may", "made", "state", "keys"]);
    for token in &tokens {
        let state = match (token.revoked, token.expires) {
            (Some(at), _) => format!("revoked {at}"),
            (None, Some(at)) if !token.holds(now()) => format!("expired {at}"),
            (None, Some(at)) => format!("holds until {at}"),
            (None, None) => "holds".to_owned(),
        };
        let keys = token.keys.join(", ");
        table.row([token.id.clone(), visible(&token.name), scope(token), token.created.to_string(), state, keys]);
    }
    crate::output::out!("{table}");
    Ok(Answer::Yes)
}

async fn revoke(args: &RevokeArgs) -> Result<Answer> {
    let tokens = args.place.open(false).await?;
    if !tokens.revoke(&args.id, now()).await? {
        let place = tokens.place();
        return Err(NotFound(format!(
            "token {}: there is none of this id in {place}; see symseal token list",
            args.id
        ))
        .into());
    }
    outln!("token {} is revoked", args.id);
    Ok(Answer::Yes)
}

fn scope(token: &TokenInfo) -> String {
    token.grants.iter().map(Grant::to_string).collect::<Vec<_>>().join(" ")
}

fn as_json(token: &TokenInfo) -> serde_json::Value {
    json!({
        "id": token.id,
        "name": token.name,
        "scope": scope(token),
        "grants": token.grants.iter().map(Grant::to_string).collect::<Vec<_>>(),
        "created": token.created.to_string(),
        "expires": token.expires.map(|time| time.to_string()),
        "revoked": token.revoked.map(|time| time.to_string()),
        "holds": token.holds(now()),
        "key_ids": token.keys,
    })
}
