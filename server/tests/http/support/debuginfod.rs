//! elfutils' server.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpListener;

use super::http;

/// elfutils' server over a folder, which ends with the test.
pub(crate) struct Debuginfod {
    child: Child,
    pub(crate) url: String,
}

impl Debuginfod {
    pub(crate) async fn start(folder: &Path, database: &Path) -> Self {
        let place = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = place.local_addr().unwrap().port().to_string();
        drop(place);
        let mut command = Command::new("debuginfod");
        command.args(["-p", &port, "-t", "0", "-g", "0", "-d"]).arg(database).arg("-F").arg(folder);
        command.env_remove("DEBUGINFOD_URLS").stdout(Stdio::null()).stderr(Stdio::null());
        let this = Self { child: command.spawn().unwrap(), url: format!("http://127.0.0.1:{port}") };
        // It counts what it found in a file after it recorded it.
        for _ in 0..400 {
            let metrics = http().get(format!("{}/metrics", this.url)).send().await;
            if let Ok(metrics) = metrics
                && metrics.text().await.unwrap().contains("found_sourcerefs_total")
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        this
    }
}

impl Drop for Debuginfod {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
