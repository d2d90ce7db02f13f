//! What is left out of the inputs: what `symseal bundle build` and `symseal publish` share.

use clap::Args as ClapArgs;
use symseal_builder::{BuildError, Exclude, SymbolBundleBuilder};

/// What among the inputs is left out.
#[derive(ClapArgs)]
pub struct ExcludeArgs {
    /// Leave out the files, directories and members of archives whose place, as the report names it, or whose name matches: '*-test.so',
    /// 'usr/share/**'. * and ? stop at a slash, ** does not. Repeat for more; the report counts what each left out.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
}

impl ExcludeArgs {
    /// The builder that leaves them out.
    pub fn on(&self, builder: SymbolBundleBuilder) -> Result<SymbolBundleBuilder, BuildError> {
        Ok(builder.exclude(Exclude::new(&self.exclude)?))
    }
}
