//! A server and nothing else: `cargo run -p symseal-server --example serve -- DATA [ADDRESS]`.

use symseal_server::{Config, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let data = arguments.next().ok_or("usage: serve DATA [ADDRESS]")?;
    let listen = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned()).parse()?;
    let server = Server::bind(Config::new(data, listen)).await?;
    println!("listening on {}", server.local_addr());
    let interrupted = async {
        // Without the signal handler the server runs until it is killed.
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(server.run(interrupted).await?)
}
