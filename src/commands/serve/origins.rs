//! Where a server's answers come from beside the bundles that were pushed to it.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use symseal_server::{CACHE_BYTES, Origins};

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
    /// MiB that DATA/cache may fill: files of other servers, compressed and generated files.
    #[arg(long, value_name = "MIB", default_value_t = CACHE_BYTES >> 20)]
    cache_size: u64,
}

impl OriginArgs {
    pub(super) fn origins(&self) -> Origins {
        Origins {
            upstreams: self.upstream.clone(),
            symbol_upstreams: self.symbol_upstream.clone(),
            source_roots: self.source_root.clone(),
            cache_bytes: self.cache_size.saturating_mul(1 << 20),
            ..Origins::default()
        }
    }
}
