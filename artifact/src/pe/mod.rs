//! PE files: headers, sections with long names, debug directory, symbols, exports, function starts.
//!
//! Numbers and structures are those of the "PE Format" specification (Microsoft); the `object` crate has their layouts.

mod debug;
mod exports;
mod headers;
mod hybrid;
mod managed;
mod object;
mod pdata;
mod section;
mod symbols;

pub(crate) use debug::printed;
pub(crate) use headers::Pe;
