//! A source file of a sealed bundle: index → sources manifest → table → the file's digest, each compared.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use symseal_bundle::Digest;
use symseal_bundle::oci::Manifest;
use symseal_bundle::sources::{self, SourceTable, TABLE_MEDIA_TYPE};

use super::home::{Home, Trouble};
use super::known::KnownBundle;
use super::{Gate, lock};
use crate::sources::Table;

/// The largest table that is read, in bytes; in memory it takes about twice as much.
const TABLE_BYTES: u64 = 64 << 20;
/// Tables that are kept.
const TABLES: usize = 4;

/// The tables that were read last.
#[derive(Default)]
pub(super) struct Tables(Mutex<VecDeque<(Digest, Arc<Table>)>>);

impl Gate {
    /// The bytes of a source file that a sealed bundle's sources have under an absolute path; `None` where they have none, or two that
    /// differ. Beside it the homes that gave something else, and what. Where no home has them, the gravest trouble is told: what does not answer may have
    /// them.
    pub(super) async fn source(
        &self,
        bundle: &KnownBundle,
        path: &str,
    ) -> (Vec<(String, String)>, Result<Option<Vec<u8>>, Trouble>) {
        let (mut wrong, mut gravest) = (Vec::new(), None);
        let Some(manifest) = bundle.index.sources else { return (wrong, Ok(None)) };
        let own = bundle.homes();
        let others = self.registry_homes().await.into_iter().filter(|other| !own.iter().any(|home| home.is(other)));
        let homes = own.iter().map(|home| (home.clone(), true)).chain(others.map(|home| (home, false)));
        for (home, has_bundle) in homes {
            let trouble = match self.source_at(&home, &manifest, path).await {
                Ok(found) => return (wrong, Ok(found)),
                // Most of the others have other things.
                Err(Trouble::Absent(_)) if !has_bundle => continue,
                Err(trouble) => trouble,
            };
            if let Trouble::Wrong(why) = &trouble {
                wrong.push((home.name(), why.clone()));
            }
            gravest = Some(graver(gravest, trouble));
        }
        (wrong, gravest.map_or(Ok(None), Err))
    }

    /// The repositories that were named as upstreams: sources may be in one of their own, and the sealed index has their digest.
    async fn registry_homes(&self) -> Vec<Home> {
        let mut homes = Vec::new();
        for registry in &self.registries {
            homes.extend(registry.home(self).await.ok());
        }
        homes
    }

    async fn source_at(&self, home: &Home, digest: &Digest, path: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let wrong = |error: &dyn std::fmt::Display| Trouble::Wrong(format!("sources {digest}: {error}"));
        let bytes = home.manifest(&self.pool, digest).await?;
        let mut found: Option<(Arc<Table>, u32)> = None;
        for manifest in sources::manifests(digest, &bytes).map_err(|error| wrong(&error))? {
            let Some(table) = self.table(home, &manifest.digest).await? else { continue };
            for at in table.places(path) {
                let sha256 = |table: &Table, at| table.entry(at).map(|file| file.sha256);
                match &found {
                    Some((other, there)) if sha256(other, *there) != sha256(&table, at) => return Ok(None),
                    Some(_) => {}
                    None => found = Some((Arc::clone(&table), at)),
                }
            }
        }
        let Some((table, at)) = found else { return Ok(None) };
        let missing = || wrong(&"its table names a pack that it has not");
        let file = table.entry(at).ok_or_else(missing)?;
        let pack = table.pack(file).ok_or_else(missing)?;
        let end = file.offset.checked_add(file.size).filter(|end| *end <= pack.size).ok_or_else(missing)?;
        let bytes = home.part(&self.pool, &pack.sha256, file.offset..end).await?;
        let hash = move || (Digest::of(&bytes), bytes);
        let (found, bytes) = self.pool.run(hash).await.map_err(|error| Trouble::Down(error.to_string()))?;
        if found != file.sha256 {
            return Err(wrong(&format!("{}: expected {}, found {found}", file.path, file.sha256)));
        }
        Ok(Some(bytes))
    }

    async fn table(&self, home: &Home, digest: &Digest) -> Result<Option<Arc<Table>>, Trouble> {
        let known = lock(&self.tables.0).iter().find(|(known, _)| known == digest).map(|(_, table)| Arc::clone(table));
        if known.is_some() {
            return Ok(known);
        }
        let wrong = |error: &dyn std::fmt::Display| Trouble::Wrong(format!("sources {digest}: {error}"));
        let manifest = Manifest::parse(&home.manifest(&self.pool, digest).await?).map_err(|error| wrong(&error))?;
        let Some(layer) = manifest.layers.first().filter(|layer| layer.media_type == TABLE_MEDIA_TYPE) else {
            return Ok(None);
        };
        if layer.size > TABLE_BYTES {
            return Err(wrong(&format!("its table has {} bytes, more than {TABLE_BYTES}", layer.size)));
        }
        let json = home.blob(&self.pool, &layer.digest, layer.size).await?;
        let parsed = self.making.run(move || SourceTable::parse(&json).map(Table::new)).await;
        let table = Arc::new(parsed.map_err(|error| Trouble::Down(error.to_string()))?.map_err(|error| wrong(&error))?);
        let mut tables = lock(&self.tables.0);
        tables.push_front((*digest, Arc::clone(&table)));
        tables.truncate(TABLES);
        Ok(Some(table))
    }
}

/// Which of two troubles says more: what does not answer may have it, and what is wrong is no absence.
fn graver(before: Option<Trouble>, trouble: Trouble) -> Trouble {
    let rank = |trouble: &Trouble| match trouble {
        Trouble::Absent(_) => 0,
        Trouble::Wrong(_) => 1,
        Trouble::Down(_) => 2,
    };
    match before {
        Some(before) if rank(&before) >= rank(&trouble) => before,
        _ => trouble,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_is_told_before_what_is_wrong_and_that_before_what_is_absent() {
        let (absent, wrong, down) =
            (Trouble::Absent("a".to_owned()), Trouble::Wrong("w".to_owned()), Trouble::Down("d".to_owned()));
        for order in [[&absent, &wrong, &down], [&down, &absent, &wrong], [&wrong, &down, &absent]] {
            let found = order.into_iter().fold(None, |before, trouble| Some(graver(before, trouble.clone())));
            assert_eq!(found, Some(down.clone()));
        }
        assert_eq!(graver(Some(wrong.clone()), absent.clone()), wrong);
        assert_eq!(graver(Some(absent), wrong.clone()), wrong);
    }
}
