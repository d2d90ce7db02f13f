//! What a client still sends after it was refused.

use std::time::Duration;

use axum::body::BodyDataStream;
use futures_util::StreamExt as _;
use tokio::time::{sleep, timeout};

/// For how long it is read and thrown away.
const PATIENCE: Duration = Duration::from_secs(30);

/// And for how long nothing may come. Both are nginx's too, which passes an answer on once it has sent what it has of the request (`lingering_time`,
/// `lingering_timeout`).
const SILENCE: Duration = Duration::from_secs(5);

/// Before that the answer gets so long to be out: who asked whether to send at all (`Expect: 100-continue`) would be told to go on by the first look
/// at the body.
const LEAD: Duration = Duration::from_millis(100);

/// Reads the rest of a body beside its answer, within bounds. A connection that is closed while bytes of the client are unread is reset by the
/// system, and the client, or the proxy before it, which sends first and reads then, would not learn why it was refused.
pub(crate) fn drain(mut body: BodyDataStream) {
    tokio::spawn(async move {
        sleep(LEAD).await;
        let reading = async { while let Ok(Some(Ok(_))) = timeout(SILENCE, body.next()).await {} };
        // Either way the body is dropped, and with it the connection once the answer is out.
        let _ = timeout(PATIENCE, reading).await;
    });
}
