//! Tasks of tokio that wait for each other, in one thread. Where it stops, a test knows who waits.
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;

/// Stops for whoever traces.
#[inline(never)]
fn stands(value: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a breakpoint changes nothing.
    unsafe {
        std::arch::asm!("int3")
    };
    #[cfg(not(target_arch = "x86_64"))]
    stands_here();
    black_box(value)
}

/// Where the tracer stops by itself, on processors that do not go on behind a breakpoint.
#[cfg(not(target_arch = "x86_64"))]
#[no_mangle]
#[inline(never)]
extern "C" fn stands_here() {
    black_box(());
}

async fn innermost(value: u64) -> u64 {
    let first = stands(value);
    // Polled again later, by then awaited.
    tokio::task::yield_now().await;
    first + stands(value + 1)
}

async fn middle(value: u64) -> u64 {
    let own = black_box([value; 40]);
    tokio::spawn(innermost(value)).await.unwrap() + own[7]
}

/// Waits for a future of its own, which waits for a task.
async fn within(value: u64) -> u64 {
    tokio::spawn(middle(value)).await.unwrap()
}

async fn outer(value: u64) -> u64 {
    within(value).await + 3
}

/// Tasks of one type.
fn nests(depth: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        match depth {
            0 => {
                tokio::task::yield_now().await;
                stands(1)
            }
            depth => tokio::spawn(nests(depth - 1)).await.unwrap() + 1,
        }
    })
}

/// Nobody waits for what it spawns.
async fn detaches() {
    drop(tokio::spawn(innermost(5)));
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sum = runtime.block_on(async {
        let outer = tokio::spawn(outer(2)).await.unwrap();
        let nests = tokio::spawn(nests(5)).await.unwrap();
        tokio::spawn(detaches()).await.unwrap();
        // Not of a task.
        outer + nests + innermost(9).await
    });
    assert!(sum > 0);
}
