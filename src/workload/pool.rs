//! A small thread pool. One of its jobs stops deep in a recursion.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use super::parking::{Slot, park};
use super::waiting::asleep;

const WORKERS: [&str; 2] = ["pool-0", "pool-1"];
const BOARD: usize = 10;
/// Queens can be placed on a board of ten by ten in 724 ways.
const STOP_AT: u64 = 300;

type Job = Box<dyn FnOnce() + Send>;

/// Starts the pool and gives it work. Both workers come to stop in a job of their own.
pub(super) fn start() -> io::Result<Vec<&'static Slot>> {
    let (sender, receiver) = mpsc::channel();
    let receiver = Arc::new(Mutex::new(receiver));
    let mut slots = Vec::new();
    for name in WORKERS {
        let receiver = Arc::clone(&receiver);
        slots.push(Slot::spawn(name, true, move || work(&receiver))?.0);
    }
    for _ in WORKERS {
        submit(&sender, || {
            let mut board = Board::default();
            let solutions = board.place(0);
            assert_eq!(solutions, 724);
        });
    }
    Ok(slots)
}

fn submit(sender: &Sender<Job>, job: impl FnOnce() + Send + 'static) {
    // Fails only when every worker has ended, and they do not.
    let _ = sender.send(Box::new(job));
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        job();
    }
}

/// The eight queens' puzzle on a larger board: the column of the queen in each row so far.
#[derive(Default)]
struct Board {
    columns: Vec<usize>,
    solutions: u64,
}

impl Board {
    /// Places the queens from `row` on in every way; the number of ways.
    fn place(&mut self, row: usize) -> u64 {
        if row == BOARD {
            self.solutions += 1;
            if self.solutions == STOP_AT {
                park(asleep);
            }
            return 1;
        }
        let mut found = 0;
        for column in 0..BOARD {
            if self.is_free(column) {
                self.columns.push(column);
                found += self.place(row + 1);
                self.columns.pop();
            }
        }
        found
    }

    fn is_free(&self, column: usize) -> bool {
        let rows_up = self.columns.iter().rev().enumerate().map(|(above, other)| (above + 1, *other));
        rows_up.into_iter().all(|(up, other)| other != column && other.abs_diff(column) != up)
    }
}
