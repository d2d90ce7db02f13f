//! SymCache, of symbolic.

use super::{BuildTimes, Built, Peer, Sum};
use crate::clock;
use crate::subject::Subject;
use anyhow::Result;
use std::io::Cursor;
use symbolic_debuginfo::Object;
use symbolic_symcache::{SymCache, SymCacheConverter};

/// With whole paths. `full_path` joins them, which takes an allocation a frame; there is no other way to a path.
pub struct SymcachePaths<'a>(Symcache<'a>);

/// Without paths: less than what is asked for, as a bound.
pub struct Symcache<'a> {
    cache: SymCache<'a>,
}

impl<'a> Symcache<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        Ok(Self { cache: SymCache::parse(bytes)? })
    }
}

impl<'a> SymcachePaths<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        Symcache::open(bytes).map(Self)
    }
}

impl Peer for SymcachePaths<'_> {
    fn name(&self) -> &'static str {
        "SymCache"
    }

    fn all(&self, addresses: &[u64]) -> Sum {
        let mut sum = Sum::default();
        for address in addresses {
            let mut any = 0;
            for location in self.0.cache.lookup(*address) {
                let file = location.file().map(|file| file.full_path()).unwrap_or_default();
                sum.frame(location.function().name(), &file, location.line());
                any = 1;
            }
            sum.hits += any;
        }
        sum
    }
}

impl Peer for Symcache<'_> {
    fn name(&self) -> &'static str {
        "SymCache, without paths"
    }

    fn all(&self, addresses: &[u64]) -> Sum {
        let mut sum = Sum::default();
        for address in addresses {
            let mut any = 0;
            for location in self.cache.lookup(*address) {
                sum.frame(location.function().name(), "", location.line());
                any = 1;
            }
            sum.hits += any;
        }
        sum
    }
}

pub fn build_symcache(subject: &Subject) -> Result<Built> {
    let (read, converter) = clock::measure(|| -> Result<_> {
        let object = Object::parse(subject.debug_bytes())?;
        let mut converter = SymCacheConverter::new();
        converter.process_object(&object)?;
        Ok(converter)
    });
    let converter = converter?;
    let (write, bytes) = clock::measure(|| -> Result<_> {
        let mut bytes = Vec::new();
        converter.serialize(&mut Cursor::new(&mut bytes))?;
        Ok(bytes)
    });
    Ok(Built { bytes: bytes?, times: BuildTimes { read, write } })
}
