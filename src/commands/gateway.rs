//! `symseal gateway`: sealed bytes alone for debuggers that verify nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args as ClapArgs;
use symseal_server::{CACHE_BYTES, Gateway, GatewayConfig, Patience, parse_address};

use super::serve::{start_logging, unless_stopped, wait_to_stop};
use crate::bundle_ref;
use crate::exit::Answer;
use crate::output::outln;
use crate::places;

/// Stand between debuggers and symbol servers, and pass on only what a trusted seal covers.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal gateway --upstream https://symbols.example --trust ./trust
  symseal gateway --upstream oci://registry.example/team/app --upstream https://debuginfod.example --trust ./trust
  symseal gateway --bundle ./bundle --upstream https://debuginfod.example --trust ./trust --listen 127.0.0.1:0
  symseal setup gdb --server http://127.0.0.1:8791 >> ~/.gdbinit

gdb, lldb and WinDbg believe whoever answers. Given the gateway as their server, they get a file only if a bundle with a seal by a
trusted key, in a trusted log, has it, and only those bytes: each page is compared before it is passed on. What cannot be proved is
refused; why stands on the page at /, in /status.json and in the log (SYMSEAL_LOG=warn or info).

Upstreams: http(s)://… is a symseal server, or any other debuginfod or symbol server, whose bytes count where a bundle known from elsewhere
covers them; oci://HOST/REPOSITORY[:TAG] is a registry, with the credentials of docker login. The trust directory may change while the
gateway runs. It listens on loopback alone. The first lines on standard output say how debuggers are told of it.")]
pub struct Args {
    /// A server or a registry's repository. Repeat for more.
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,
    /// A bundle on this machine: a directory with an OCI layout, or sha256:… in the local store. Repeat for more.
    #[arg(long, value_name = "BUNDLE", required_unless_present = "upstream")]
    bundle: Vec<String>,
    /// The trust directory: root.json, policy.dsse.json, trusted_root.json.
    #[arg(long, value_name = "DIR")]
    trust: Option<PathBuf>,
    /// Address and port on loopback; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value_t = LISTEN, value_parser = parse_address)]
    listen: SocketAddr,
    /// Where checked files and what was seen of logs and policies are kept; default: gateway in the user's data directory.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Bytes that checked files may fill. One file may fill half of it.
    #[arg(long, value_name = "BYTES", default_value_t = CACHE_BYTES)]
    cache_bytes: u64,
    /// The local bundle store.
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// How the log is written to standard error.
    #[arg(long, value_name = "text|json", value_parser = ["text", "json"], default_value = "text")]
    log_format: String,
}

/// Where the gateway listens by default.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8791);

pub fn run(args: &Args) -> Result<Answer> {
    let state = match &args.state {
        Some(state) => state.clone(),
        None => places::data_dir()?.join("gateway"),
    };
    let mut bundles = Vec::new();
    for reference in &args.bundle {
        let opened = bundle_ref::open(reference, args.store.as_ref())?.bundle;
        let (layout, digest) = (opened.layout().cloned(), opened.digest());
        let what = || format!("--bundle {reference}: expected an OCI layout, found a directory of files");
        bundles.push((layout.with_context(what)?, digest.with_context(what)?));
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime could be started")?;
    let mut stop = wait_to_stop(&runtime)?;
    start_logging(&args.log_format)?;
    let config = GatewayConfig {
        listen: args.listen,
        upstreams: args.upstream.clone(),
        bundles,
        trust: places::trust_dir(args.trust.as_ref())?,
        state,
        cache_bytes: args.cache_bytes,
        patience: Patience::default(),
    };
    let has_run = runtime.block_on(async {
        let start = async { Ok(Gateway::bind(config).await?) };
        let Some(gateway) = unless_stopped(start, &mut stop).await? else { return anyhow::Ok(false) };
        let url = format!("http://{}", gateway.local_addr());
        outln!("gateway on {url}");
        outln!("gdb, lldb:  DEBUGINFOD_URLS={url}");
        outln!("WinDbg:     _NT_SYMBOL_PATH=srv*C:\\symbols*{url}/symbols");
        outln!("status:     {url}/");
        gateway.run(stop).await?;
        Ok(true)
    })?;
    if !has_run {
        runtime.shutdown_background();
    }
    Ok(Answer::Yes)
}
