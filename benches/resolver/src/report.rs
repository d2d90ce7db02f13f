//! Figures for people and for machines.

use std::time::Duration;

use anyhow::{Context, Result};

pub struct Measured {
    case: String,
    who: &'static str,
    time: Duration,
}

impl Measured {
    pub fn new(case: &str, who: &'static str, time: Duration) -> Self {
        Self { case: case.to_owned(), who, time }
    }

    /// Ours by this one's, in the same case.
    fn ratio(&self, all: &[Self]) -> Option<f64> {
        let ours = all.iter().find(|other| other.who == "symseal" && other.case == self.case)?;
        (self.who != "symseal").then(|| ours.time.as_secs_f64() / self.time.as_secs_f64())
    }
}

pub fn table(all: &[Measured]) {
    println!("{:45} {:10} {:>12} {:>12}", "case", "who", "µs", "ours / it");
    for one in all {
        let ratio = one.ratio(all).map_or(String::new(), |ratio| format!("{ratio:.3}"));
        println!("{:45} {:10} {:>12.1} {ratio:>12}", one.case, one.who, one.time.as_secs_f64() * 1e6);
    }
}

pub fn json(all: &[Measured]) {
    for one in all {
        let ratio = one.ratio(all);
        let time = one.time.as_secs_f64() * 1e6;
        println!("{}", serde_json::json!({"case": one.case, "who": one.who, "us": time, "ours_by_it": ratio}));
    }
}

/// Memory of this process that no file backs, in bytes.
pub fn anonymous_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix(" kB")).context("/proc/self/status has no RssAnon")?;
    Ok(kilobytes.trim().parse::<u64>()? * 1024)
}
