//! Figures as a table, or as JSON.

use crate::peers::{BuildTimes, Sum};
use serde_json::{Value, json};
use symseal_symx::Counts;

/// What was measured on one subject.
pub struct Figures {
    pub subject: String,
    pub addresses: usize,
    /// Bytes of all `.debug_*` sections, decompressed.
    pub raw_dwarf: u64,
    pub debug_file: u64,
    pub counts: Counts,
    /// Of the table in which names and contexts are whole.
    pub whole: Counts,
    pub symcache_bytes: u64,
    pub symx_build: BuildTimes,
    pub symcache_build: BuildTimes,
    /// CPU nanoseconds to decompress the sections, which both builds do.
    pub decompression_ns: u64,
    pub peers: Vec<PeerFigures>,
}

pub struct PeerFigures {
    pub name: &'static str,
    /// CPU nanoseconds a lookup, the fastest pass.
    pub lookup_ns: f64,
    /// Wall nanoseconds, median.
    pub first_symbol_ns: Option<u64>,
    pub sum: Sum,
}

impl Figures {
    fn ours(&self) -> f64 {
        self.peers.first().map_or(f64::NAN, |ours| ours.lookup_ns)
    }

    /// The fastest of those that do the same work.
    fn fastest_peer(&self) -> f64 {
        let equal = self.peers.iter().filter(|peer| ["SymCache", "addr2line"].contains(&peer.name));
        equal.map(|peer| peer.lookup_ns).fold(f64::INFINITY, f64::min)
    }

    fn megabytes_a_second(&self, times: BuildTimes) -> f64 {
        self.raw_dwarf as f64 * 1e3 / (times.read + times.write) as f64
    }

    fn size_ratio(&self, bytes: u64) -> f64 {
        bytes as f64 / self.raw_dwarf as f64
    }

    fn build_ratio(&self) -> f64 {
        let total = |times: BuildTimes| (times.read + times.write) as f64;
        total(self.symx_build) / total(self.symcache_build)
    }
}

pub fn print_tables(all: &[Figures]) {
    for figures in all {
        let counts = figures.counts;
        println!(
            "## {}: {} functions, {} rows, {} inlined contexts, {} files",
            figures.subject, counts.functions, counts.rows, counts.inlines, counts.files
        );
        println!();
        println!(
            "| lookup, warm ({} addresses, CPU time) | ns | ours / it | first symbol, fresh process | answers | frames | sum of lines |",
            figures.addresses
        );
        println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
        for peer in &figures.peers {
            let first = peer.first_symbol_ns.map_or(String::new(), |ns| format!("{:.0} µs", ns as f64 / 1e3));
            let Sum { hits, frames, lines, .. } = peer.sum;
            println!(
                "| {} | {:.0} | {:.2} | {first} | {hits} | {frames} | {lines} |",
                peer.name,
                peer.lookup_ns,
                figures.ours() / peer.lookup_ns
            );
        }
        println!();
        println!(
            "Lookup against the fastest peer of equal work: {:.2} (target: at most 0.50)",
            figures.ours() / figures.fastest_peer()
        );
        println!();
        println!("| size | bytes | of raw DWARF |");
        println!("| --- | ---: | ---: |");
        for (name, bytes) in [
            ("raw DWARF (`.debug_*`, decompressed)", figures.raw_dwarf),
            ("debug file", figures.debug_file),
            (".symx core", counts.core_bytes),
            (".symx columns", counts.column_bytes),
            ("  of the core, names and paths", counts.string_bytes),
            (".symx core, names and contexts whole", figures.whole.core_bytes),
            ("  of it, names and paths", figures.whole.string_bytes),
            ("SymCache (has no columns)", figures.symcache_bytes),
        ] {
            println!("| {name} | {bytes} | {:.3} |", figures.size_ratio(bytes));
        }
        println!();
        println!("| building | reading, ms | writing, ms | MB/s of raw DWARF |");
        println!("| --- | ---: | ---: | ---: |");
        for (name, times) in [(".symx", figures.symx_build), ("SymCache", figures.symcache_build)] {
            let [read, write] = [times.read, times.write].map(|ns| ns as f64 / 1e6);
            println!("| {name} | {read:.0} | {write:.0} | {:.0} |", figures.megabytes_a_second(times));
        }
        println!();
        println!("Decompressing the sections alone takes {:.0} ms.", figures.decompression_ns as f64 / 1e6);
        println!("Time to build against SymCache: {:.2} (target: at most 0.50)", figures.build_ratio());
        println!();
    }
}

pub fn print_json(all: &[Figures]) {
    let one = |figures: &Figures| {
        let times = |times: BuildTimes| json!({"read_ns": times.read, "write_ns": times.write});
        let peer = |peer: &PeerFigures| {
            json!({
                "name": peer.name, "lookup_ns": peer.lookup_ns, "ratio": figures.ours() / peer.lookup_ns,
                "first_symbol_ns": peer.first_symbol_ns,
                "answers": peer.sum.hits, "frames": peer.sum.frames, "lines": peer.sum.lines, "text_bytes": peer.sum.text,
            })
        };
        json!({
            "subject": figures.subject, "addresses": figures.addresses, "raw_dwarf_bytes": figures.raw_dwarf,
            "debug_file_bytes": figures.debug_file, "symx_core_bytes": figures.counts.core_bytes,
            "symx_whole_core_bytes": figures.whole.core_bytes, "symx_column_bytes": figures.counts.column_bytes, "symcache_bytes": figures.symcache_bytes,
            "core_ratio": figures.size_ratio(figures.counts.core_bytes),
            "lookup_ratio": figures.ours() / figures.fastest_peer(), "build_ratio": figures.build_ratio(), "decompression_ns": figures.decompression_ns,
            "build": {"symx": times(figures.symx_build), "symcache": times(figures.symcache_build)},
            "peers": figures.peers.iter().map(peer).collect::<Vec<_>>(),
        })
    };
    println!("{}", json!({"bench": "symbols", "subjects": all.iter().map(one).collect::<Vec<Value>>()}));
}
