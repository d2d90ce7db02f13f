//! Which sources a bundle is built with: what `symseal bundle build` and `symseal publish` share.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use symseal_builder::{SourceMap, SourceOptions, SymbolBundleBuilder};

/// Where the sources of a release lie.
#[derive(ClapArgs)]
pub struct SourcingArgs {
    /// Gather the source files that the line tables name, from below this directory and from nowhere else, as an artifact of
    /// their own beside the bundle. Repeat for more.
    #[arg(long, value_name = "DIR")]
    sources: Vec<PathBuf>,
    /// Where the sources of a directory in the line tables are found: in TO, relative to each --sources directory or absolute
    /// and in one. Repeat for more.
    #[arg(long, value_name = "FROM=TO", requires = "sources")]
    source_map: Vec<SourceMap>,
}

impl SourcingArgs {
    /// Whether sources are asked for.
    pub fn is_wanted(&self) -> bool {
        !self.sources.is_empty()
    }

    /// The builder that gathers them.
    pub fn on(&self, builder: SymbolBundleBuilder) -> SymbolBundleBuilder {
        if !self.is_wanted() {
            return builder;
        }
        builder.sources(SourceOptions { roots: self.sources.clone(), maps: self.source_map.clone() })
    }
}
