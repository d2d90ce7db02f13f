//! Stands still in a task of tokio for which others wait.
use std::io::Write;

#[inline(never)]
fn stands() -> u64 {
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

async fn innermost() -> u64 {
    tokio::task::yield_now().await;
    stands() + 1
}

async fn middle() -> u64 {
    tokio::spawn(innermost()).await.unwrap() + 2
}

async fn outer() -> u64 {
    tokio::spawn(middle()).await.unwrap() + 3
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    println!("{}", runtime.block_on(async { tokio::spawn(outer()).await.unwrap() }));
}
