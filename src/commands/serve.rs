//! `symseal serve`: OCI registry and debuginfod from one blob directory.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use symseal_server::{Config, Server};

use crate::exit::Answer;
use crate::output::outln;
use crate::places;

/// Serve bundles to OCI clients, and their files to debuginfod clients.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal serve --data ./data --listen 127.0.0.1:8790
  DEBUGINFOD_URLS=http://127.0.0.1:8790 gdb -iex 'set auto-load no' ./app

The first line on standard output names the address. Ctrl-C or SIGTERM ends the server after the requests under way.
There is no authentication in this version: listen on loopback, or behind a proxy that asks for it.")]
pub struct Args {
    /// Where the server keeps blobs and its database.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Address and port; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8790")]
    listen: SocketAddr,
}

pub fn run(args: &Args) -> Result<Answer> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("SYMSEAL_LOG").unwrap_or_else(|_| "warn".into()))
        .with_writer(std::io::stderr)
        .init();
    let data = match &args.data {
        Some(data) => data.clone(),
        None => places::data_dir()?.join("server"),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime could be started")?;
    runtime.block_on(async {
        let server = Server::bind(Config { data: data.clone(), listen: args.listen }).await?;
        outln!("serving {} on http://{}", data.display(), server.local_addr());
        server.run(shutdown()).await?;
        Ok(Answer::Yes)
    })
}

/// Ends when the process is asked to.
async fn shutdown() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        let Ok(mut terminated) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
            let _ = interrupted.await;
            return;
        };
        tokio::select! {
            _ = interrupted => {}
            _ = terminated.recv() => {}
        }
    }
    #[cfg(not(unix))]
    let _ = interrupted.await;
}
