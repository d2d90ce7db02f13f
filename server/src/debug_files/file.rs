//! The index of ids as a file of the data directory, so that a start reads no bundle.
//!
//! What it says of a bundle follows from the bundle's digest, so an old file is never wrong, only incomplete: which bundles
//! there are say the repositories.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::layer::{Bytes, CONTENT, Layer, join};
use super::{Bundle, DebugFiles, Standing};
use crate::blobs::{BlobDigest, map_own, write_file_atomically};
use crate::ids::Ids;

/// Its name in the data directory.
pub(crate) const INDEX_FILE: &str = "ids.index";

/// What changes is saved after so long, in one go.
pub(crate) const SAVE_AFTER: Duration = Duration::from_secs(60);

impl DebugFiles {
    /// Takes over the bundles of the index file that have a standing; how many. A file that is missing or cannot be used has
    /// none. Blocks.
    pub(crate) fn load(&self, path: &Path, standing: impl Fn(&BlobDigest) -> Option<Standing>) -> usize {
        let layer = match open(path) {
            Ok(layer) => layer,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return 0,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the index of ids is not used and made again from the bundles");
                return 0;
            }
        };
        let _arranging = self.arranging();
        let mut known = self.known();
        for entry in layer.bundles() {
            let Ok(digest) = entry.digest.parse::<BlobDigest>() else { continue };
            match standing(&digest) {
                Some(standing) => {
                    known.bundles.insert(digest, Bundle { entry: Arc::new(entry), standing });
                }
                None => known.is_unsaved = true,
            }
        }
        let layer = layer.with_standings(|digest| known.standing(digest));
        self.show(vec![layer]);
        known.bundles.len()
    }

    /// Writes the index file where something has changed since, and goes on with a map of it. Blocks.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        // Changes go on meanwhile: what is unsaved then is unsaved again.
        if !std::mem::take(&mut self.known().is_unsaved) {
            return Ok(());
        }
        let saved = self.write(path);
        if saved.is_err() {
            self.known().is_unsaved = true;
        }
        saved
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let layers = self.shown.load().layers.clone();
        let all: Vec<&Layer> = layers.iter().collect();
        let joined = join(&all, |digest| self.known().knows(digest)).map_err(io::Error::other)?;
        write_file_atomically(path, joined.as_bytes())?;
        let layer = open(path)?;
        let _arranging = self.arranging();
        let shown = self.shown.load();
        let is_same =
            shown.layers.len() == layers.len() && shown.layers.iter().zip(&layers).all(|(a, b)| a.has_ids_of(b));
        if is_same {
            self.show(vec![layer.with_standings(|digest| self.known().standing(digest))]);
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<Layer> {
    let file = File::open(path)?;
    let map = map_own(&file)?;
    let damaged = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let ids = Ids::open(Bytes::Map(map)).map_err(damaged)?;
    if ids.content() != CONTENT {
        return Err(io::Error::other(format!("expected rows of version {CONTENT}, found version {}", ids.content())));
    }
    Ok(Layer::new(ids, |_| None))
}
