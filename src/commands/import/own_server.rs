//! A server on a data directory, for as long as an import runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::BoxFuture;
use reqwest::Url;
use symseal_seal::UtcSeconds;
use symseal_server::tokens::{Grant, NewToken, Tokens};
use symseal_server::{AccessConfig, ConfigFile, DatabaseUrl, SealRules, Server, ServerError};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use super::Args;
use crate::commands::bundle::verify::now;
use crate::commands::serve::{load_config, shutdown};
use crate::symbols_server::SymbolsServer;

/// How long a token holds that is made for one import: it is renewed while that goes on, and revoked at its end, however it comes; where the program is killed
/// (SIGKILL), it expires.
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// Of its life, the part after which it is renewed, and, where that could not be done, tried again: many times before it ends.
const RENEWED_AFTER: u32 = 24;

/// So the same rules hold as for files that come over the network, and the same is written down.
pub(super) struct OwnServer {
    url: Url,
    token: Token,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), ServerError>>,
    renewing: AbortHandle,
    /// Ends when this program is to end.
    told_to_end: Option<BoxFuture<'static, ()>>,
}

/// What it is shown.
struct Token {
    tokens: Arc<Tokens>,
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
        let token = Token::make(&args.repository, &data, database.as_ref(), TOKEN_LIFE).await?;
        let renewing = token.renewing(TOKEN_LIFE);
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async { drop(stopped.await) }));
        Ok(Self { url, token, stop, running, renewing, told_to_end: Some(Box::pin(told_to_end)) })
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
        self.renewing.abort();
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
    async fn make(repository: &str, data: &Path, database: Option<&DatabaseUrl>, life: Duration) -> Result<Self> {
        let prefix: symseal_server::tokens::Prefix =
            repository.parse().with_context(|| format!("--repository {repository}"))?;
        let tokens = Tokens::open(data, database).await?;
        let new = NewToken {
            name: "symseal import".to_owned(),
            created: now(),
            expires: Some(until(life)),
            grants: vec![Grant::Read(prefix.clone()), Grant::Write(prefix)],
            keys: Vec::new(),
        };
        let (secret, info) = tokens.create(new).await?;
        Ok(Self { tokens: Arc::new(tokens), id: info.id, secret: secret.expose().to_owned() })
    }

    /// Renews it again and again, until that is aborted or somebody revokes it.
    fn renewing(&self, life: Duration) -> AbortHandle {
        let (tokens, id) = (Arc::clone(&self.tokens), self.id.clone());
        let renewing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(life / RENEWED_AFTER).await;
                match tokens.renew(&id, until(life)).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => {
                        eprintln!("warning: the token of this import is not renewed, which is tried again: {error}")
                    }
                }
            }
        });
        renewing.abort_handle()
    }
}

fn until(life: Duration) -> UtcSeconds {
    UtcSeconds(now().0.saturating_add(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_token_holds_for_as_long_as_its_import_and_not_once_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let life = Duration::from_secs(6);
        let token = Token::make("loose", folder.path(), None, life).await.unwrap();
        let renewing = token.renewing(life);
        let info = async || {
            let listed = token.tokens.list().await.unwrap();
            listed.into_iter().find(|listed| listed.id == token.id).unwrap()
        };
        let began = Instant::now();
        while began.elapsed() < life * 2 {
            assert!(info().await.holds(now()), "after {:?}", began.elapsed());
            tokio::time::sleep(life / 10).await;
        }
        assert!(token.tokens.revoke(&token.id, now()).await.unwrap());
        let expires = info().await.expires;
        tokio::time::sleep(life / 2).await;
        assert!(!info().await.holds(now()) && info().await.expires == expires && renewing.is_finished());
    }
}
