//! Where answers come from beside the bundles that were pushed here.

use std::path::PathBuf;
use std::time::Duration;

/// What a server may answer with beside the bundles of its repositories. The default is: nothing.
#[derive(Debug, Clone)]
pub struct Origins {
    /// Base URLs of debuginfod servers, asked for a build-id that no bundle here has.
    pub upstreams: Vec<String>,
    /// Base URLs of symbol servers (Microsoft's symsrv), asked for a file that no bundle here has.
    pub symbol_upstreams: Vec<String>,
    /// Directories whose files may be read as sources.
    pub source_roots: Vec<PathBuf>,
    /// Directories of debug files, archives and packages that are served where they lie.
    pub trees: Vec<PathBuf>,
    /// How long after a look at them the next one begins.
    pub tree_interval: Duration,
    /// Bytes that the cache of upstreams' files, compressed forms and generated files may fill.
    pub cache_bytes: u64,
    /// How long upstreams are waited for.
    pub patience: Patience,
}

/// How long an upstream is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until it is connected.
    pub connect: Duration,
    /// Until the head of its answer. A debuginfod server may take an archive apart first.
    pub head: Duration,
    /// Between two pieces of a body.
    pub stall: Duration,
    /// How long one that was found dead is left alone; doubled with each probe that fails, up to sixteen times.
    pub pause: Duration,
    /// How long "there is no such file" is believed.
    pub absence: Duration,
}

/// The default of [`Origins::cache_bytes`]: 4 GiB.
pub const CACHE_BYTES: u64 = 4 << 30;

/// The default of [`Origins::tree_interval`]: five minutes, as debuginfod's.
pub const TREE_INTERVAL: Duration = Duration::from_secs(5 * 60);

impl Default for Origins {
    fn default() -> Self {
        Self {
            upstreams: Vec::new(),
            symbol_upstreams: Vec::new(),
            source_roots: Vec::new(),
            trees: Vec::new(),
            tree_interval: TREE_INTERVAL,
            cache_bytes: CACHE_BYTES,
            patience: Patience::default(),
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            head: Duration::from_secs(45),
            stall: Duration::from_secs(30),
            pause: Duration::from_secs(15),
            absence: Duration::from_secs(60),
        }
    }
}
