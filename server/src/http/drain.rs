//! What a client still sends after it was refused.

use std::time::Duration;

use axum::body::BodyDataStream;
use futures_util::StreamExt as _;

/// Bytes that are read and thrown away.
const DRAINED: usize = 16 << 20;

/// And for how long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads the rest of a body beside its answer, within bounds. A connection that is closed while bytes of the client are unread is reset by the
/// system, and the client, which sends first and reads then, would not learn why it was refused.
pub(crate) fn drain(mut body: BodyDataStream) {
    tokio::spawn(async move {
        let mut drained = 0_usize;
        let reading = async {
            while let Some(Ok(chunk)) = body.next().await {
                drained = drained.saturating_add(chunk.len());
                if drained > DRAINED {
                    return;
                }
            }
        };
        // Either way the body is dropped, and with it the connection once the answer is out.
        let _ = tokio::time::timeout(PATIENCE, reading).await;
    });
}
