//! What the caller allows the resolver to use, and says of the addresses.

use crate::CallSite;

/// Default bound of the address cache, in addresses.
pub const DEFAULT_ADDRESS_CACHE: usize = 65_536;

/// What may be used besides the bundles that were handed over. The default is bundles only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Also read the binaries where the process had them, if their debug id is the module's.
    pub local_files: bool,
    /// Ask the servers of [`Resolver::with_servers`](crate::Resolver::with_servers).
    pub online: bool,
    /// Give demangled names as `function`. The raw symbol is kept beside it.
    pub demangle: bool,
    /// How a call is found from its return address.
    pub call_site: CallSite,
    /// Bound of the address cache, in addresses; 0 caches none. Answers do not depend on it.
    pub address_cache: usize,
}

impl Default for Options {
    fn default() -> Self {
        let call_site = CallSite::LastByte;
        Self { local_files: false, online: false, demangle: false, call_site, address_cache: DEFAULT_ADDRESS_CACHE }
    }
}
