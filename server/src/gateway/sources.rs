//! A source file of a sealed bundle: index → sources manifest → table → the file's digest, each compared.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use symseal_bundle::Digest;
use symseal_bundle::oci::Manifest;
use symseal_bundle::sources::{self, SourceTable, TABLE_MEDIA_TYPE};

use super::catalogue::KnownBundle;
use super::home::{Home, Trouble};
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
    /// differ.
    pub(super) async fn source(&self, bundle: &KnownBundle, path: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let Some(manifest) = bundle.index.sources else { return Ok(None) };
        let mut trouble = None;
        for home in bundle.homes() {
            match self.source_at(&home, &manifest, path).await {
                Ok(found) => return Ok(found),
                Err(found) => trouble = Some(found),
            }
        }
        trouble.map_or(Ok(None), Err)
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
        let found = Digest::of(&bytes);
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
