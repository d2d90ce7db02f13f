//! From a configuration to a listening socket, and from there to an orderly end. What is served is opened in [`opened`](crate::opened).

use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::future::BoxFuture;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower_service::Service as _;

use crate::access::take_path_token;
use crate::alerts::record_again;
use crate::app::App;
use crate::blobs::is_shortage;
use crate::check::idle_rules;
use crate::collector::{Collector, NO_GRACE, Schedule};
use crate::crowd::{Crowd, During, Place};
use crate::debug_files::{INDEX_FILE, SAVE_AFTER};
use crate::http::{Answering, BreakConnection, Breakable, MapSender, Peer, Unsent, drain, listen, unserved};
use crate::opened::{lock_data, open};
use crate::origins::{no_tree, no_upstream};
use crate::pool::Pool;
use crate::retention::{Retention, retain_again};
use crate::routes::routes;
use crate::seals::LOOK_AGAIN;
use crate::shared::{follow, prune, settle};
use crate::starting::answer_until_done;
use crate::takedown::{tell_of_lost, watch};
use crate::tls::{self, Tls};
use crate::trees::{Trees, scan_again};
use crate::upstream::Upstreams;
use crate::{Config, DatabaseUrl, LogConfig, Origins, SealRules, ServerError, restore};

/// How long a client may take to send a request's head.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// After an accept that failed (mostly: no file descriptors left) the next one waits this long.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that has to go for another is closed at once where nothing is being read or written, else after this, unless a request came meanwhile.
const LEAVING: Duration = Duration::from_millis(10);

/// And is told of no sooner after the one before.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// A server that holds its data directory and listens. While it is made it answers that it is starting; then not before [`Server::run`].
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    collector: Arc<Collector>,
    schedule: Option<Schedule>,
    index_file: PathBuf,
    tls: Option<Arc<Tls>>,
    stop_within: Duration,
    /// Held while the server lives; the system releases it when the process ends, however it ends.
    lock: File,
}

impl Server {
    /// Creates or opens the data directory and its database, rebuilds the memory index and listens.
    ///
    /// # Errors
    /// [`ServerError`] names the file or address.
    pub fn bind(config: Config) -> BoxFuture<'static, Result<Self, ServerError>> {
        Self::bind_with_log(config, None)
    }

    /// [`Self::bind`] for a server that keeps a transparency log, which must be there. While another process
    /// holds the log's lease, the log is read and takes no entries.
    ///
    /// # Errors
    /// [`ServerError`] names the file or address.
    pub fn bind_with_log(config: Config, log: Option<LogConfig>) -> BoxFuture<'static, Result<Self, ServerError>> {
        Box::pin(Self::bound(config, log))
    }

    async fn bound(config: Config, log: Option<LogConfig>) -> Result<Self, ServerError> {
        // The address first: where it is taken, nothing is left behind.
        let failed = |source| ServerError::Listen { address: config.listen, source };
        let listener = listen(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let lock = lock_data(&config.data)?;
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        if let Some(problem) = config.database.as_ref().and_then(DatabaseUrl::warning) {
            tracing::warn!("{problem}");
        }
        let app = answer_until_done(&listener, tls.as_deref(), open(&config, log)).await?;
        let collector = Arc::new(Collector::of(&app));
        let index_file = config.data.join(INDEX_FILE);
        let stop_within = config.stop_within;
        Ok(Self { listener, address, app, collector, schedule: None, index_file, tls, stop_within, lock })
    }

    /// Collects what nothing names by this schedule while the server runs; without one it is left where it is.
    #[must_use]
    pub fn collecting(self, schedule: Schedule) -> Self {
        if let Some(problem) = self.collector.problem() {
            tracing::warn!("what nothing names is NOT collected: {problem}");
        }
        if schedule.grace.is_zero() {
            tracing::warn!("{NO_GRACE}");
        }
        Self { schedule: Some(schedule), ..self }
    }

    /// Judges seals by a trust directory, and shows only sealed bundles where the rules say so.
    ///
    /// # Errors
    /// [`ServerError::Trust`] or [`ServerError::RequireSeal`].
    pub fn judging(self, rules: SealRules) -> BoxFuture<'static, Result<Self, ServerError>> {
        Box::pin(self.judged_by(rules))
    }

    async fn judged_by(self, rules: SealRules) -> Result<Self, ServerError> {
        let required = rules.required()?;
        let app = Arc::clone(&self.app);
        let lost = |error| ServerError::Data { path: rules.trust.clone(), source: io::Error::other(error) };
        let (shared, directory) = (Arc::clone(&app), rules.trust.clone());
        self.app.pool.run(move || shared.seals.trust(directory)).await.map_err(lost)??;
        let judging = restore::judge_all(&app, Some(required));
        answer_until_done(&self.listener, self.tls.as_deref(), judging)
            .await
            .map_err(|error| ServerError::Data { path: rules.trust.clone(), source: io::Error::other(error) })?;
        Ok(self)
    }

    /// Answers from these places too.
    ///
    /// # Errors
    /// [`ServerError::Origin`] names the URL or directory.
    pub fn with_origins(self, origins: &Origins) -> Result<Self, ServerError> {
        let app = &self.app;
        origins.warnings().iter().for_each(|problem| tracing::warn!("{problem}"));
        app.cache.bound(origins.cache_bytes);
        let data = self.index_file.parent().unwrap_or(Path::new(""));
        let withheld = origins.withheld(data);
        if !origins.trees.is_empty() {
            let (cache, taken_down) = (Arc::clone(&app.cache), Arc::clone(&app.taken_down));
            let trees =
                Trees::open(&origins.trees, (data, Arc::clone(&withheld)), cache, taken_down, origins.tree_interval)
                    .map_err(no_tree)?;
            let _ = app.trees.set(Arc::new(trees));
        }
        // A server is told once, before it runs; a second time changes nothing.
        let _ = app.source_roots.set(origins.open_source_roots(&withheld)?);
        for (urls, slot) in [(&origins.upstreams, &app.upstreams), (&origins.symbol_upstreams, &app.symbol_upstreams)] {
            if urls.is_empty() {
                continue;
            }
            let pools = (app.pool.clone(), app.making.clone());
            let (cache, taken_down) = (Arc::clone(&app.cache), Arc::clone(&app.taken_down));
            let upstreams = Upstreams::new(urls, origins.patience, (cache, taken_down), pools)
                .map_err(|problem| no_upstream(urls, problem))?;
            let _ = slot.set(Arc::new(upstreams));
        }
        Ok(self)
    }

    /// Collects at other times too.
    pub fn collector(&self) -> Arc<Collector> {
        Arc::clone(&self.collector)
    }

    /// Applies the rules of retention at other times too.
    pub fn retention(&self) -> Retention {
        Retention { app: Arc::clone(&self.app) }
    }

    /// The address that is listened on, with the port that was picked.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `shutdown` completes, then lets those under way finish for a bounded time.
    ///
    /// # Errors
    /// None at present: a failed accept is logged and tried again.
    pub fn run<'a>(self, shutdown: impl Future<Output = ()> + Send + 'a) -> BoxFuture<'a, Result<(), ServerError>> {
        self.run_until(Box::pin(shutdown))
    }

    fn run_until(self, shutdown: BoxFuture<'_, ()>) -> BoxFuture<'_, Result<(), ServerError>> {
        Box::pin(self.running(shutdown))
    }

    async fn running(self, mut shutdown: BoxFuture<'_, ()>) -> Result<(), ServerError> {
        let Self { listener, app, collector, schedule, index_file, tls, stop_within, lock, .. } = self;
        idle_rules(&app.retention).iter().for_each(|problem| tracing::warn!("{problem}"));
        let collecting = schedule.map(|schedule| {
            let collector = Arc::clone(&collector);
            tokio::spawn(async move { collector.run_by(schedule).await })
        });
        let judging = tokio::spawn(judge_again(Arc::clone(&app)));
        let saving = tokio::spawn(save_again(Arc::clone(&app), index_file.clone()));
        let watching = tokio::spawn(watch(Arc::clone(&app)));
        let looking_back = tokio::spawn(tell_of_lost(Arc::clone(&app)));
        let recording = tokio::spawn(record_again(Arc::clone(&app)));
        let retaining = (!app.retention.is_empty()).then(|| tokio::spawn(retain_again(Arc::clone(&app))));
        let following = app.follower.is_some().then(|| tokio::spawn(follow(Arc::clone(&app))));
        let settling = app.follower.is_some().then(|| tokio::spawn(settle(Arc::clone(&app))));
        let pruning = app.follower.is_some().then(|| tokio::spawn(prune(Arc::clone(&app))));
        let renewing = tls.clone().map(|tls| tokio::spawn(renew(tls, app.pool.clone())));
        let scanning = app.trees.get().map(|trees| tokio::spawn(scan_again(Arc::clone(trees))));
        let router = routes(Arc::clone(&app));
        let graceful = GracefulShutdown::new();
        let (stop, stops) = watch::channel(false);
        let mut not_accepted = NotAccepted::default();
        let crowd = Crowd::new(usize::MAX);
        // A server runs once.
        let _ = app.crowd.set(Arc::clone(&crowd));
        let unsent = Unsent::of_the_system();
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = accept_into(&listener, &crowd) => match accepted {
                    Ok((stream, peer, place)) => {
                        let ends = (graceful.watcher(), stops.clone());
                        let stream = Breakable::new(stream, &unsent);
                        accept(stream, peer, tls.as_deref(), (router.clone(), HEAD_TIMEOUT), (place, ends));
                    }
                    Err(error) => {
                        not_accepted.tell(&error);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        app.stopping.store(true, Ordering::Relaxed);
        stop.send_replace(true);
        drop(listener);
        if let Some(renewing) = renewing {
            renewing.abort();
        }
        if let Some(scanning) = scanning {
            scanning.abort();
        }
        if let Some(retaining) = retaining {
            retaining.abort();
        }
        watching.abort();
        looking_back.abort();
        judging.abort();
        saving.abort();
        for task in [following, settling, pruning].into_iter().flatten() {
            task.abort();
        }
        if tokio::time::timeout(stop_within, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests that were still under way are cut off");
        }
        // The directory may be another server's from here on, so no round may go on in it.
        collector.stop();
        if let Some(collecting) = collecting {
            let _ = collecting.await;
        }
        recording.abort();
        if let Err(error) = app.alerts.record(app.store.as_ref()).await {
            tracing::warn!(%error, "alerts are lost but for this log");
        }
        save(&app, index_file).await;
        if let Err(error) = app.store.settle().await {
            tracing::warn!(%error, "what the database has written stays in its log, beside its file");
        }
        drop(lock);
        Ok(())
    }
}

/// The next connection, once there is room for it in a crowd, and its place there.
///
/// # Errors
/// Of the system. Where that is for want of descriptors, one connection without a request is on its way out.
pub(crate) async fn accept_into(listener: &TcpListener, crowd: &Arc<Crowd>) -> io::Result<(TcpStream, Peer, Place)> {
    crowd.has_room().await;
    let accepted = listener.accept().await;
    if accepted.as_ref().is_err_and(is_shortage) {
        crowd.send_one_away();
    }
    let (stream, peer) = accepted?;
    Ok((stream, Peer(peer.ip()), crowd.enter()))
}

/// Connections that are not accepted, which come in floods: where there are no descriptors left, each try fails.
#[derive(Debug, Default)]
pub(crate) struct NotAccepted {
    told: Option<Instant>,
    untold: u64,
}

impl NotAccepted {
    /// Tells of one, unless another was told of just now; whether it did.
    pub(crate) fn tell(&mut self, error: &io::Error) -> bool {
        if self.told.is_some_and(|told| told.elapsed() < TELL_AGAIN) {
            self.untold = self.untold.saturating_add(1);
            return false;
        }
        tracing::warn!(%error, since = self.untold, "a connection was not accepted");
        *self = Self { told: Some(Instant::now()), untold: 0 };
        true
    }
}

/// Saves the index of ids where it has changed.
async fn save_again(app: Arc<App>, index_file: PathBuf) {
    loop {
        tokio::time::sleep(SAVE_AFTER).await;
        save(&app, index_file.clone()).await;
    }
}

/// What is not saved is made again at the next start.
pub(crate) async fn save(app: &Arc<App>, index_file: PathBuf) {
    let (shared, path) = (Arc::clone(app), index_file.clone());
    match app.pool.run(move || shared.debug_files.save(&path)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(path = %index_file.display(), %error, "the index of ids was not saved"),
        Err(error) => tracing::warn!(path = %index_file.display(), %error, "the index of ids was not saved"),
    }
}

/// Judges all seals again when the trust directory changes or time passes.
async fn judge_again(app: Arc<App>) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let shared = Arc::clone(&app);
        if let Ok(true) = app.pool.run(move || shared.seals.look_again()).await
            && let Err(error) = restore::judge_all(&app, None).await
        {
            tracing::error!(%error, "seals could not be judged again");
        }
    }
}

/// Reads a renewed certificate.
async fn renew(tls: Arc<Tls>, pool: Pool) {
    loop {
        tokio::time::sleep(tls::LOOK_AGAIN).await;
        let shared = Arc::clone(&tls);
        if pool.run(move || shared.look_again()).await.is_err() {
            return;
        }
    }
}

/// How a connection ends: what the server waits for when it stops, and what tells that it stops.
pub(crate) type Ends = (Watcher, watch::Receiver<bool>);

/// Answers what comes over a connection that was accepted, by a router and within a time for a request's head, and one before it for the handshake, which
/// ends, too, when the server stops or another connection needs the place.
pub(crate) fn accept(
    stream: Breakable,
    peer: Peer,
    tls: Option<&Tls>,
    (router, patience): (Router, Duration),
    (place, ends): (Place, Ends),
) {
    let answered = stream.answered();
    let Some(tls) = tls else {
        let stream = Answering::new(MapSender::new(stream), answered);
        tokio::spawn(serve_connection(stream, peer, (router, patience), (place, ends)));
        return;
    };
    let acceptor = tls.acceptor();
    tokio::spawn(async move {
        let (watcher, mut stops) = ends;
        let handshake = tokio::time::timeout(patience, acceptor.accept(stream));
        let shaken = tokio::select! {
            shaken = handshake => shaken,
            () = place.seat().told_to_leave() => return,
            () = told_to_stop(&mut stops) => return tracing::debug!("the server stops: a connection was not encrypted"),
        };
        match shaken {
            Ok(Ok(stream)) => {
                let stream = Answering::new(stream, answered);
                serve_connection(stream, peer, (router, patience), (place, (watcher, stops))).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a connection was not encrypted"),
            Err(_) => tracing::debug!("a connection was not encrypted in time"),
        }
    });
}

/// Answers what comes over one connection, by a router and within a time for a request's head.
pub(crate) async fn serve_connection(
    stream: Answering<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
    peer: Peer,
    (router, patience): (Router, Duration),
    (place, (_watcher, mut stops)): (Place, Ends),
) {
    let seat = Arc::clone(place.seat());
    let stream = stream.seated(&seat);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        // Up to the answer. What is left of the request's body then, and read so that the client gets to the answer, keeps no place.
        let (seat, under_way) = (Arc::clone(&seat), seat.begin());
        let refusal = unserved(&request);
        let token = take_path_token(&mut request);
        request.extensions_mut().insert(peer);
        let mut router = router.clone();
        async move {
            let request = request.map(Body::new);
            let answer = match refusal {
                Some(refusal) => {
                    drain(request.into_body().into_data_stream());
                    Ok(refusal)
                }
                None => router.call(request).await,
            };
            let mut answer = answer_or_break(answer)?;
            if let Some(token) = token {
                token.put_back(answer.headers_mut());
            }
            let answer = answer.map(|body| During::new(body, &seat));
            drop(under_way);
            Ok::<_, Broken>(answer)
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        // A request that is known to have come is read before the connection is closed for another.
        biased;
        ended = connection.as_mut() => ended,
        () = told_to_stop(&mut stops) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = place.seat().told_to_leave() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(LEAVING, connection.as_mut()).await {
                Ok(ended) => ended,
                // Its request came at the same moment.
                Err(_) if place.seat().is_busy() => connection.await,
                // Half a request's head.
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn told_to_stop(stops: &mut watch::Receiver<bool>) {
    // Where nobody is left who could tell it, the server has stopped.
    let _ = stops.wait_for(|stops| *stops).await;
}

/// An error here makes hyper close the connection without a byte.
fn answer_or_break(answer: Result<Response, Infallible>) -> Result<Response, Broken> {
    let Ok(response) = answer;
    if response.extensions().get::<BreakConnection>().is_some() { Err(Broken) } else { Ok(response) }
}

#[derive(Debug, thiserror::Error)]
#[error("the connection is closed on purpose")]
struct Broken;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_connections_that_are_not_accepted_one_is_told_in_a_second() {
        let mut not_accepted = NotAccepted::default();
        let error = io::Error::from_raw_os_error(24);
        assert!(not_accepted.tell(&error));
        assert!((0..1000).all(|_| !not_accepted.tell(&error)));
        not_accepted.told = not_accepted.told.and_then(|told| told.checked_sub(TELL_AGAIN));
        assert_eq!(not_accepted.untold, 1000);
        assert!(not_accepted.tell(&error));
        assert_eq!(not_accepted.untold, 0);
    }
}
