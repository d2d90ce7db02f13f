//! `symseal serve`: OCI registry and debuginfod from one blob directory.

mod descriptors;
mod origins;
mod settings;

use std::future::Future;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use futures_util::future::BoxFuture;
use symseal_sealer::{LogKey, TileLog};
use symseal_server::{AccessConfig, Config, LOG_FOLDER, LogConfig, Server, make_data};
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::exit::Answer;
use crate::keyring;
use crate::log_lines::visible_fields;
use crate::output::outln;

pub(crate) use self::settings::{Chosen, GC_GRACE, Settings, load_config};

/// Serve bundles to OCI clients, and their files to debuggers and profilers.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  symseal serve --data ./data --listen 127.0.0.1:8790
  symseal serve --data ./data --log --log-key /safe/log.key.pem
  symseal serve --data ./data --trust ./trust --require-seal prod team/app
  symseal serve --data ./data --listen 0.0.0.0:443 --access tokens --anonymous-read public \\
                --tls-certificate chain.pem --tls-key key.pem
  symseal serve --config /etc/symseal/server.toml --check-config
  DEBUGINFOD_URLS=http://127.0.0.1:8790 gdb -iex 'set auto-load no' ./app

The first line on standard output names the address. Ctrl-C or SIGTERM ends the server after the requests under way; SIGHUP without a terminal, SIGUSR1 and
SIGUSR2 change nothing.
Every setting can stand in the file that --config names, and in the environment: SYMSEAL_SERVER_ACCESS__MODE=tokens is
mode in [access]. Options go before the environment, the environment before the file. docs/operating.md lists them.
On loopback everybody may do everything but write to the log; on another address say who may (--access).")]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Read the configuration and what it names (certificate and key, trust directory, directories that are served), say what is wrong with it,
    /// and end. Nothing is made, and no other machine is asked. What runs already is looked at by symseal doctor.
    #[arg(long)]
    check_config: bool,
    /// How the server's log is written to standard error; what is in it: SYMSEAL_LOG=warn, info (a line for each request) or
    /// debug.
    #[arg(long, value_name = "text|json", value_parser = ["text", "json"], default_value = "text")]
    log_format: String,
    /// Keep a transparency log too: it is made in DATA/log where there is none. A log that is there is served anyhow.
    #[arg(long)]
    log: bool,
}

pub fn run(args: &Args) -> Result<Answer> {
    let Chosen { config, origins, seals, schedule, log: log_section, log_key } = args.settings.chosen()?;
    let data = config.data.clone();
    if args.check_config {
        filter_of_environment()?;
        symseal_server::check(&config, &origins, seals.as_ref())?;
        for warning in symseal_server::check_warnings(&config, &origins, schedule) {
            eprintln!("warning: {warning}");
        }
        outln!("{}", said(&config));
        return Ok(Answer::Yes);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime could be started")?;
    let mut stop = wait_to_stop(&runtime)?;
    start_logging(&args.log_format)?;
    descriptors::allow_many();
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let (is_wanted, folder) = (args.log || log_section.enabled == Some(true), data.clone());
    let start = async move {
        let log = log(is_wanted, &log_key, &folder)?;
        let mut server = Server::bind_with_log(config, log).await?;
        if let Some(schedule) = schedule {
            server = server.collecting(schedule);
        }
        if let Some(rules) = seals {
            server = server.judging(rules).await?;
        }
        Ok(server.with_origins(&origins)?)
    };
    let has_run = runtime.block_on(async {
        let Some(server) = unless_stopped(start, &mut stop).await? else { return anyhow::Ok(false) };
        outln!("serving {} on {scheme}://{}", data.display(), server.local_addr());
        server.run(stop).await?;
        Ok(true)
    })?;
    if !has_run {
        // What is still read for the start is of no use to anybody.
        runtime.shutdown_background();
    }
    Ok(Answer::Yes)
}

/// [`shutdown`], from before the work of a start: as process 1 of a container a program is not ended by a signal that nobody in it waits for.
pub(crate) fn wait_to_stop(runtime: &Runtime) -> Result<BoxFuture<'static, ()>> {
    let _entered = runtime.enter();
    Ok(Box::pin(shutdown().context("signals cannot be waited for")?))
}

/// What a start comes to; `None` where the process is told to end before: nothing was acknowledged, so nothing is waited for. The start is a task of its own,
/// as some of it holds its thread.
pub(crate) async fn unless_stopped<T: Send + 'static>(
    start: impl Future<Output = Result<T>> + Send + 'static,
    stop: &mut BoxFuture<'static, ()>,
) -> Result<Option<T>> {
    tokio::select! {
        biased;
        () = stop => Ok(None),
        started = tokio::spawn(start) => started.context("the start broke off")?.map(Some),
    }
}

/// What a sound configuration comes to.
fn said(config: &Config) -> String {
    let access = match &config.access {
        AccessConfig::Open => "everybody who reaches it may do everything".to_owned(),
        AccessConfig::Tokens { anonymous_read } if anonymous_read.is_empty() => "tokens are asked for".to_owned(),
        AccessConfig::Tokens { anonymous_read } => {
            let prefixes: Vec<String> = anonymous_read.iter().map(ToString::to_string).collect();
            format!("tokens are asked for, but to read {}", prefixes.join(", "))
        }
    };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let database = config.database.as_ref().map_or_else(String::new, |database| format!(" with {database}"));
    let blobs = config.blobs.as_ref().map_or_else(String::new, |blobs| format!(" as a cache of {}", blobs.url));
    format!("sound: {}{blobs}{database} on {scheme}://{}; {access}", config.data.display(), config.listen)
}

/// What is in the log, out of the environment.
const LOG: &str = "SYMSEAL_LOG";

/// Begins the log on standard error.
///
/// # Errors
/// The environment says what is no filter.
pub(crate) fn start_logging(format: &str) -> Result<()> {
    let log = tracing_subscriber::fmt().with_env_filter(filter_of_environment()?).with_writer(std::io::stderr);
    if format == "json" {
        log.json().flatten_event(true).init();
    } else {
        log.fmt_fields(visible_fields()).init();
    }
    Ok(())
}

fn filter_of_environment() -> Result<EnvFilter> {
    let said = std::env::var_os(LOG).unwrap_or_default();
    log_filter(&said.to_string_lossy()).with_context(|| LOG.to_owned())
}

/// A word alone that is neither a level nor one of our parts would be the name of a part that there is not, and nothing at all would be logged.
fn log_filter(said: &str) -> Result<EnvFilter> {
    let words: Vec<&str> = said.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let expected = "expected off, error, warn, info, debug or trace, or PART=LEVEL such as symseal_server=debug";
    for word in words.iter().filter(|word| !word.contains(['=', '['])) {
        if word.parse::<LevelFilter>().is_err() && !word.starts_with("symseal") {
            bail!("{expected}, found {word:?}");
        }
    }
    // Blanks would be part of a name.
    match words.is_empty() {
        true => Ok("warn".into()),
        false => EnvFilter::try_new(words.join(",")).with_context(|| format!("{expected}, found {said:?}")),
    }
}

/// The log in the data directory: where it is wanted it is made, with a key of its own.
fn log(is_wanted: bool, key_file: &Path, data: &Path) -> Result<Option<LogConfig>> {
    let dir = data.join(LOG_FOLDER);
    if !TileLog::exists(&dir) {
        if !is_wanted {
            return Ok(None);
        }
        make_data(data).with_context(|| format!("{}", data.display()))?;
        let key = if key_file.exists() {
            LogKey::load_pem(key_file)?
        } else {
            let parent = key_file.parent().unwrap_or(data);
            std::fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
            LogKey::generate_file(key_file)?
        };
        // Made here, and opened again by the server.
        drop(keyring::open_or_create_log_with(&dir, key, key_file)?);
    }
    let last_seen = keyring::last_checkpoint(key_file);
    if is_below(&last_seen, data) {
        eprintln!(
            "warning: the log's key and its last checkpoint, {}, lie in the data directory: a backup of it that is put back would not be noticed, and the log would sign a second history; keep them elsewhere (--log-key)",
            last_seen.display()
        );
    }
    let key =
        LogKey::load_pem(key_file).with_context(|| format!("log {}: its key is needed (--log-key)", dir.display()))?;
    Ok(Some(LogConfig { key, last_seen }))
}

/// Whether a file lies in a directory, by whatever name it was called.
fn is_below(file: &Path, directory: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    real(folder).zip(real(directory)).is_some_and(|(folder, directory)| folder.starts_with(directory))
}

/// Ends when the process is asked to. Who asks once more does not wait for what is under way: what was acknowledged is on the disk.
/// Signals are waited for from the call on, so that one right after it ends nothing in the middle; before it they end the process.
///
/// # Errors
/// The system lets nobody wait for signals.
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    let mut signals = StopSignals::new()?;
    Ok(async move {
        signals.next().await;
        tokio::spawn(async move {
            signals.next().await;
            eprintln!("stopped at once: requests that were under way are cut off");
            std::process::exit(1);
        });
    })
}

/// Ctrl-C, and SIGTERM where there is one.
#[cfg(unix)]
struct StopSignals {
    interrupted: tokio::signal::unix::Signal,
    terminated: tokio::signal::unix::Signal,
    /// The terminal went away, or somebody asks a server to read its settings again, or to open its logs anew.
    hung_up: tokio::signal::unix::Signal,
    asked: [tokio::signal::unix::Signal; 2],
    /// A file grew beyond what the process may write: who listens for it is told by the write, and not ended.
    _too_large: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl StopSignals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let too_large = SignalKind::from_raw(libc::SIGXFSZ);
        Ok(Self {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
            hung_up: signal(SignalKind::hangup())?,
            asked: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
            _too_large: signal(too_large)?,
        })
    }

    async fn next(&mut self) {
        let Self { interrupted, terminated, hung_up, asked: [one, two], .. } = self;
        loop {
            tokio::select! {
                _ = interrupted.recv() => return,
                _ = terminated.recv() => return,
                _ = hung_up.recv() => if io::stdin().is_terminal() { return },
                _ = one.recv() => {}
                _ = two.recv() => {}
            }
            // Habit of those who run servers: the rotation of a log, the renewal of a certificate.
            eprintln!(
                "a signal that changes nothing: settings are read at the start, certificates again by themselves, and the log goes to standard error (SIGTERM ends the server)"
            );
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct StopSignals(tokio::signal::windows::CtrlC);

#[cfg(not(unix))]
impl StopSignals {
    fn new() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_the_log_that_would_show_nothing_is_refused() {
        for said in
            ["", " ", "info", "WARN", "off", "symseal_server=debug", "warn,hyper=info", "info,", "symseal_server"]
        {
            assert!(log_filter(said).is_ok(), "{said}");
        }
        for said in ["info ", " info", "warn, info"] {
            let filter = log_filter(said).unwrap();
            assert_eq!(filter.max_level_hint(), Some(LevelFilter::INFO), "{said}");
        }
        for said in ["nonsense", "inf", "warn,verbose", "a=b=c", "warn=loud"] {
            let told = format!("{:#}", log_filter(said).unwrap_err());
            assert!(told.contains("expected off, error, warn, info, debug or trace"), "{said}: {told}");
        }
    }
}
