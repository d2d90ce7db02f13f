//! Where a server's answers come from beside the bundles that were pushed to it.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use symseal_server::{CACHE_BYTES, Origins, OriginsSection, Patience, SILENCE, TREE_INTERVAL, parse_duration};

/// Other servers, directories of sources, and the cache.
#[derive(ClapArgs)]
pub(super) struct OriginArgs {
    /// Ask this debuginfod server for what no bundle here has; its files are checked and kept in DATA/cache. Repeat for more.
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,
    /// Ask this symbol server (symsrv) for PDBs and PE files that no bundle here has. Repeat for more.
    #[arg(long, value_name = "URL")]
    symbol_upstream: Vec<String>,
    /// Let clients read source files below this directory, as if it were the root directory. Repeat for more.
    #[arg(long, value_name = "DIR")]
    source_root: Vec<PathBuf>,
    /// Serve the debug files and programs below this directory where they lie, loose and in archives and packages (deb, rpm, tar, zip). Repeat for
    /// more.
    #[arg(long, value_name = "DIR")]
    index: Vec<PathBuf>,
    /// How long after a look at these directories the next one begins (s, m, h or d); default: 5m.
    #[arg(long, value_parser = parse_duration)]
    index_interval: Option<Duration>,
    /// MiB that DATA/cache may fill: files of other servers, compressed and generated files; default: 4096.
    #[arg(long, value_name = "MIB")]
    cache_size: Option<NonZeroU64>,
}

impl OriginArgs {
    /// Whether there is an option at all.
    pub(super) fn is_any(&self) -> bool {
        let has_server = !self.upstream.is_empty() || !self.symbol_upstream.is_empty();
        let has_place = !self.source_root.is_empty() || !self.index.is_empty();
        has_server || has_place || self.index_interval.is_some() || self.cache_size.is_some()
    }

    pub(super) fn origins(&self, file: &OriginsSection) -> Origins {
        let cache_mib = self.cache_size.or(file.cache_mib);
        Origins {
            upstreams: chosen(&self.upstream, &file.upstreams),
            symbol_upstreams: chosen(&self.symbol_upstream, &file.symbol_upstreams),
            source_roots: chosen(&self.source_root, &file.source_roots),
            trees: chosen(&self.index, &file.index),
            tree_interval: self.index_interval.or(file.index_interval).unwrap_or(TREE_INTERVAL),
            cache_bytes: cache_mib.map_or(CACHE_BYTES, |mib| mib.get().saturating_mul(1 << 20)),
            patience: Patience { silence: file.upstream_silence.unwrap_or(SILENCE), ..Patience::default() },
            withheld: Vec::new(),
        }
    }
}

fn chosen<T: Clone>(options: &[T], file: &[T]) -> Vec<T> {
    if options.is_empty() { file.to_vec() } else { options.to_vec() }
}
