//! What a server answers before it has read what it keeps, which of a bucket with many bundles takes its time.
//!
//! Whoever watches servers is answered: it lives, and is not ready. Debuggers get a reset, as from a server that is not there: their library keeps every
//! answer but a file as "there is none" for ten minutes, and whatever stands before several servers asks the next one. The others are told to come again.

use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::crowd::Crowd;
use crate::endpoints::plain;
use crate::http::{BreakConnection, Breakable, Unsent, drain};
use crate::metrics::Face;
use crate::routes::face_of;
use crate::serve::{ACCEPT_PAUSE, accept, accept_into};
use crate::tls::Tls;

/// After how many seconds those who were sent away should come again.
const AGAIN: HeaderValue = HeaderValue::from_static("5");

/// Connections at once, at most: there is nothing to be had on them.
const CONNECTIONS: usize = 256;

/// How long one of them may take to send a request's head.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers of this time that are under way when it ends have so long.
const LAST: Duration = Duration::from_secs(5);

const WHY: &str = "the server is starting: it reads what it keeps";

/// Answers what comes on the listener until some work is done. Every connection ends with its first answer, and those that asked for nothing end with the
/// work, so that none is left that would be told later that the server is starting.
pub(crate) async fn answer_until_done<T>(
    listener: &TcpListener,
    tls: Option<&Tls>,
    work: impl Future<Output = T>,
) -> T {
    let router = Router::new().fallback(answer);
    let connections = GracefulShutdown::new();
    let (stop, stops) = watch::channel(false);
    let crowd = Crowd::new(CONNECTIONS);
    let unsent = Unsent::of_the_system();
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            accepted = accept_into(listener, &crowd) => match accepted {
                Ok((stream, peer, place)) => {
                    let ends = (connections.watcher(), stops.clone());
                    accept(Breakable::new(stream, &unsent), peer, tls, (router.clone(), PATIENCE), (place, ends));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    };
    stop.send_replace(true);
    tokio::spawn(tokio::time::timeout(LAST, connections.shutdown()));
    done
}

async fn answer(request: Request) -> Response {
    let path = request.uri().path();
    let mut response = match (path, face_of(path)) {
        ("/healthz", _) => plain(StatusCode::OK, "ok"),
        (_, Face::Debuginfod | Face::Symbols) => return reset(),
        _ => {
            let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, WHY);
            response.headers_mut().insert(header::RETRY_AFTER, AGAIN);
            response
        }
    };
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    // Who still sends something would else be reset in the middle of it, and not read why.
    drain(request.into_body().into_data_stream());
    response
}

/// Nothing is said of it in the log, as that is how a start goes.
fn reset() -> Response {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, WHY);
    response.extensions_mut().insert(BreakConnection);
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    /// What comes on a connection until its end, or how it broke.
    fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes())?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    }

    #[tokio::test]
    async fn who_watches_is_told_and_debuggers_get_nothing_that_they_would_keep() {
        let listener = crate::http::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asking = tokio::task::spawn_blocking(move || {
            let idle = TcpStream::connect(address).unwrap();
            let asked = ["/healthz", "/readyz", "/v2/app/tags/list", "/t/secret/v2/"];
            let told = asked.map(|path| ask(address, path).unwrap());
            let ids = ["/buildid/ab/debuginfo", "/t/secret/buildid/ab/executable", "/s/app/buildid/ab/debuginfo"];
            let debuggers = [ids.as_slice(), &["/metadata?key=file&value=a", "/symbols/a.pdb/1/a.pdb"]].concat();
            (idle, told, debuggers.iter().map(|path| ask(address, path)).collect::<Vec<_>>())
        });
        let (mut idle, told, debuggers) = answer_until_done(&listener, None, asking).await.unwrap();
        assert!(told[0].starts_with("HTTP/1.1 200") && told[0].contains("connection: close"), "{}", told[0]);
        for told in &told[1..] {
            assert!(told.starts_with("HTTP/1.1 503") && told.contains("retry-after: 5\r\n"), "{told}");
            assert!(told.contains("the server is starting") && told.contains("connection: close"), "{told}");
        }
        for told in debuggers {
            assert_eq!(told.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        }
        // Whoever asked for nothing so far asks on another connection, where somebody can answer.
        let ended = tokio::task::spawn_blocking(move || {
            idle.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            idle.read(&mut [0; 16])
        });
        assert!(matches!(ended.await.unwrap(), Ok(0) | Err(_)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn however_many_say_nothing_whoever_asks_is_answered() {
        let listener = crate::http::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asking = tokio::task::spawn_blocking(move || {
            let connect = || TcpStream::connect(address).unwrap();
            let mut silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect()).collect();
            let asked = std::time::Instant::now();
            for _ in 0..3 {
                let told = ask(address, "/healthz").unwrap();
                assert!(told.starts_with("HTTP/1.1 200"), "{told}");
                silent.push(connect());
            }
            let answered = asked.elapsed();
            // The newest would stay for as long as the work goes on.
            let last = silent.last_mut().unwrap();
            last.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
            (answered, last.read(&mut [0; 16]).map_err(|error| error.kind()))
        });
        let (answered, ended) = answer_until_done(&listener, None, asking).await.unwrap();
        assert!(answered < PATIENCE, "{answered:?}");
        assert!(matches!(ended, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{ended:?}");
    }
}
