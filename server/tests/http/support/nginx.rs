//! nginx with the configuration that is shipped. The tests of the stores, which are another program, use it too.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What an operator includes.
const SHIPPED: &str = include_str!("../../../../release-jobs/deploy/nginx.conf");

/// nginx before two servers, with its logs in a folder. It ends with this.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) address: SocketAddr,
    folder: PathBuf,
}

impl Nginx {
    /// The program, where there is one. Debian keeps it out of the PATH of those who are no root.
    pub(crate) fn program() -> Option<&'static str> {
        ["/usr/sbin/nginx", "nginx"].into_iter().find(|program| {
            Command::new(program).arg("-v").stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        })
    }

    pub(crate) fn start(program: &str, folder: &Path, servers: [SocketAddr; 2]) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let place = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = place.local_addr().unwrap();
        drop(place);
        // Other addresses, and no TLS, of which there is no certificate here.
        let here = [
            ("10.0.0.11:8790", servers[0].to_string()),
            ("10.0.0.12:8790", servers[1].to_string()),
            ("listen 443 ssl;", format!("listen {address};")),
            ("ssl_certificate /etc/symseal/chain.pem;", String::new()),
            ("ssl_certificate_key /etc/symseal/key.pem;", String::new()),
        ];
        let included = here.iter().fold(SHIPPED.to_owned(), |text, (shipped, here)| {
            assert_eq!(text.matches(shipped).count(), 1, "{shipped}");
            text.replace(shipped, here)
        });
        let at = folder.display();
        let whole = format!(
            "daemon off; pid {at}/pid; error_log {at}/error.log; user root; worker_processes 1;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log {at}/access.log; client_body_temp_path {at}/1; proxy_temp_path {at}/2;\n\
             fastcgi_temp_path {at}/3; uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;\n{included}}}\n"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, whole).unwrap();
        let mut nginx = Command::new(program);
        nginx.arg("-e").arg(folder.join("error.log")).arg("-c").arg(&file).arg("-p").arg(folder);
        let child = nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let this = Self { child, address, folder: folder.to_owned() };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "nginx does not listen: {}", this.log("error.log"));
            std::thread::sleep(Duration::from_millis(20));
        }
        this
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What it wrote into `access.log` or `error.log`.
    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM, so that its workers end too.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
