//! What the single-step test walks through in Rust: panics through several frames, caught, and a drop that unwinds past; closures,
//! trait objects, formatting and collections.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Guard<'c>(&'c mut u64, u64);

impl Drop for Guard<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        *self.0 = black_box(*self.0 + self.1);
    }
}

#[inline(never)]
fn descend(depth: u64, count: &mut u64, numbers: &[u64]) -> u64 {
    let guard = Guard(count, depth);
    if depth == 0 {
        return black_box(numbers)[black_box(numbers.len())];
    }
    descend(depth - 1, guard.0, numbers) + depth
}

trait Shape {
    fn area(&self, depth: u32) -> Result<u64, String>;
}

struct Square(u64);

impl Shape for Square {
    #[inline(never)]
    fn area(&self, depth: u32) -> Result<u64, String> {
        if depth == 0 {
            return Err(format!("no more than {} of {:?}", self.0, 1.5));
        }
        self.area(black_box(depth - 1)).map(|area| area * self.0)
    }
}

#[inline(never)]
fn round(round: u64) -> u64 {
    let mut count = 0;
    let numbers: Vec<u64> = (0..40).map(|at| at * 37 % 101).collect();
    let panicked = catch_unwind(AssertUnwindSafe(|| descend(5, &mut count, &numbers))).is_err();
    let resumed = catch_unwind(|| {
        let caught = catch_unwind(|| black_box(None::<u64>).expect("a number"));
        std::panic::resume_unwind(caught.expect_err("it panics"))
    });
    let shape: Box<dyn Shape> = black_box(Box::new(Square(round)));
    let mut text = String::new();
    let mut sorted = numbers.clone();
    sorted.sort_by_key(|number| black_box(number % 10));
    let counts: BTreeMap<u64, usize> = sorted.iter().map(|number| (number % 13, text.len())).collect();
    write!(text, "{:?} {:>8.3} {counts:?}", shape.area(4), 2.5).expect("room");
    u64::from(panicked) + u64::from(resumed.is_err()) + count + text.len() as u64
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).expect("a number of rounds");
    let sum: u64 = (0..rounds).map(round).sum();
    println!("{sum}");
}
