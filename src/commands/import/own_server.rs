//! A server on a data directory, for as long as an import runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use futures_util::future::BoxFuture;
use reqwest::Url;
use symseal_server::tokens::{Grant, NewToken, Tokens};
use symseal_server::{AccessConfig, ConfigFile, DatabaseUrl, SealRules, Server, ServerError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Args;
use crate::commands::bundle::verify::now;
use crate::commands::serve::{load_config, shutdown};
use crate::symbols_server::SymbolsServer;

/// Days that a token holds that is made for one import. It is revoked at the end of that, however it comes; where the program is killed (SIGKILL), it expires.
const TOKEN_DAYS: u32 = 1;

/// So the same rules hold as for files that come over the network, and the same is written down.
pub(super) struct OwnServer {
    url: Url,
    token: Token,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), ServerError>>,
    /// Ends when this program is to end.
    told_to_end: Option<BoxFuture<'static, ()>>,
}

/// What it is shown.
struct Token {
    tokens: Tokens,
    id: String,
    secret: String,
}

/// The data directory that is imported into, and the configuration that says more of it; `None` where files go to another server, or nowhere.
pub(super) fn place(args: &Args) -> Result<Option<(PathBuf, ConfigFile)>> {
    if args.to.is_some() {
        return Ok(None);
    }
    let file = load_config(args.config.as_deref())?;
    let stated = file.data.clone().filter(|_| args.config.is_some());
    Ok(args.data.clone().or(stated).map(|data| (data, file)))
}

impl OwnServer {
    pub(super) async fn start(args: &Args, data: PathBuf, file: &ConfigFile) -> Result<Self> {
        let mut config = file.config(data, ([127, 0, 0, 1], 0).into())?;
        // Every user of this machine reaches it, so that it asks for a token whatever the server does otherwise.
        (config.tls, config.limits) = (None, Default::default());
        config.access = AccessConfig::Tokens { anonymous_read: Vec::new() };
        let (data, database) = (config.data.clone(), config.database.clone());
        let mut server = Server::bind(config).await?;
        if let Some(trust) = file.seals.trust.clone() {
            server = server.judging(SealRules { trust, require: file.seals.require_seal.clone() }).await?;
        }
        let url = format!("http://{}", server.local_addr()).parse()?;
        // Before there is a token: from here on nothing ends this program without its being revoked, but for what nobody can wait for.
        let told_to_end = shutdown().context("signals")?;
        let token = Token::make(args, &data, database.as_ref()).await?;
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async { drop(stopped.await) }));
        Ok(Self { url, token, stop, running, told_to_end: Some(Box::pin(told_to_end)) })
    }

    /// Comes to its end when somebody wants this program to end; it is given once.
    pub(super) fn told_to_end(&mut self) -> Option<BoxFuture<'static, ()>> {
        self.told_to_end.take()
    }

    /// The way to it.
    pub(super) fn client(&self, repository: &str) -> Result<SymbolsServer> {
        Ok(SymbolsServer::new(&self.url, repository)?.with_token(&self.token.secret))
    }

    /// Revokes its token, and ends it after what is under way.
    pub(super) async fn stop(self) -> Result<()> {
        let Token { tokens, id, .. } = &self.token;
        let revoked = tokens.revoke(id, now()).await;
        let _ = self.stop.send(());
        self.running.await??;
        revoked.context("the token of this import could not be revoked")?;
        Ok(())
    }
}

impl Token {
    /// The audit log has the token's name, so that it says what came by an import.
    async fn make(args: &Args, data: &Path, database: Option<&DatabaseUrl>) -> Result<Self> {
        let prefix: symseal_server::tokens::Prefix =
            args.repository.parse().with_context(|| format!("--repository {}", args.repository))?;
        let tokens = Tokens::open(data, database).await?;
        let new = NewToken {
            name: "symseal import".to_owned(),
            created: now(),
            expires: Some(now().plus_days(TOKEN_DAYS)),
            grants: vec![Grant::Read(prefix.clone()), Grant::Write(prefix)],
            keys: Vec::new(),
        };
        let (secret, info) = tokens.create(new).await?;
        Ok(Self { tokens, id: info.id, secret: secret.expose().to_owned() })
    }
}
