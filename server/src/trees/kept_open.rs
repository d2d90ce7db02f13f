//! Small files that were asked for a moment ago stay open: an answer then asks the open file alone whether it is what it was.
//!
//! To open one takes a thread of the pool and forty calls of the system, most of them to find out that it is none that the server keeps for itself:
//! several times what its bytes cost (`docs/performance.md`, "The server beside Debian's debuginfod").

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::blobs::OpenBlob;
use crate::file_stamp::FileStamp;

/// Files that stay open.
const FILES: usize = 128;

/// The largest of them, in bytes. Of others sending is the greater part, and one that is removed keeps its place on the disk while it is open.
const LARGEST: u64 = 1 << 20;

/// How long a file is taken for the one at its path before it is looked for again.
const BELIEVED: Duration = Duration::from_secs(2);

/// The files, by their names in the index.
#[derive(Debug, Default)]
pub(super) struct KeptOpen {
    files: Mutex<HashMap<String, Kept>>,
}

#[derive(Debug)]
struct Kept {
    blob: Arc<OpenBlob>,
    stamp: FileStamp,
    sha256: [u8; 32],
    opened: Instant,
}

impl KeptOpen {
    /// The file with these bytes, if it was opened a moment ago and nobody has touched it since, with the state that it is in. Waits for no disk.
    pub(super) fn get(&self, name: &str, sha256: &[u8; 32]) -> Option<(Arc<OpenBlob>, FileStamp)> {
        let (blob, stamp) = {
            let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = files.get(name).filter(|kept| kept.is_believed() && kept.sha256 == *sha256)?;
            (Arc::clone(&kept.blob), kept.stamp)
        };
        let metadata = blob.file.metadata().ok()?;
        let is_as_it_was = metadata.nlink() > 0 && FileStamp::of(&metadata).is_ok_and(|now| now == stamp);
        is_as_it_was.then_some((blob, stamp))
    }

    /// Keeps a file that was opened just now, in that state and with these bytes.
    pub(super) fn keep(&self, name: String, sha256: [u8; 32], (blob, stamp): (&Arc<OpenBlob>, FileStamp)) {
        if blob.size > LARGEST || !tells_at_once(&blob.file) {
            return;
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, kept| kept.is_believed());
        if files.len() < FILES {
            files.insert(name, Kept { blob: Arc::clone(blob), stamp, sha256, opened: Instant::now() });
        }
    }
}

impl Kept {
    fn is_believed(&self) -> bool {
        self.opened.elapsed() < BELIEVED
    }
}

/// Whether the file's system says what it has in memory. One behind a network does not, and to ask for a file's state may wait for its server.
#[cfg(target_os = "linux")]
fn tells_at_once(file: &File) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let read = preadv2(file, &mut [std::io::IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT);
    read.map_or_else(|error| error == Errno::AGAIN, |_| true)
}

#[cfg(not(target_os = "linux"))]
fn tells_at_once(_: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const BYTES: [u8; 32] = [7; 32];

    fn opened(path: &Path) -> (Arc<OpenBlob>, FileStamp) {
        let file = File::open(path).unwrap();
        let metadata = file.metadata().unwrap();
        let blob = OpenBlob { size: metadata.len(), modified: metadata.modified().ok(), file };
        (Arc::new(blob), FileStamp::of(&metadata).unwrap())
    }

    /// Times of change count in ticks of the system's clock.
    fn tick() {
        std::thread::sleep(Duration::from_millis(50));
    }

    #[test]
    fn a_file_that_was_touched_removed_or_replaced_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.debug");
        let another = folder.path().join("b.debug");
        type Deed = fn(&Path, &Path);
        let deeds: [(&str, Deed); 4] = [
            ("written to", |path, _| std::fs::write(path, "other").unwrap()),
            ("removed", |path, _| std::fs::remove_file(path).unwrap()),
            ("replaced", |path, another| std::fs::rename(another, path).unwrap()),
            ("moved away", |path, another| std::fs::rename(path, another).unwrap()),
        ];
        for (what, deed) in deeds {
            std::fs::write(&path, "bytes").unwrap();
            std::fs::write(&another, "bytes").unwrap();
            let kept = KeptOpen::default();
            let (blob, stamp) = opened(&path);
            if !tells_at_once(&blob.file) {
                println!("SKIP files that stay open: the system of {} does not tell at once", path.display());
                return;
            }
            kept.keep("a".to_owned(), BYTES, (&blob, stamp));
            assert!(kept.get("a", &BYTES).is_some_and(|(found, _)| Arc::ptr_eq(&found, &blob)));
            assert!(kept.get("a", &[8; 32]).is_none(), "other bytes are wanted");
            assert!(kept.get("b", &BYTES).is_none());
            tick();
            deed(&path, &another);
            assert!(kept.get("a", &BYTES).is_none(), "{what}");
        }
    }

    #[test]
    fn few_and_small_files_stay_open_and_not_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.debug");
        std::fs::write(&path, "bytes").unwrap();
        let (blob, stamp) = opened(&path);
        if !tells_at_once(&blob.file) {
            return;
        }
        let kept = KeptOpen::default();
        for number in 0..FILES + 9 {
            kept.keep(number.to_string(), BYTES, (&blob, stamp));
        }
        assert_eq!(kept.files.lock().unwrap().len(), FILES);
        kept.files.lock().unwrap().values_mut().for_each(|kept| kept.opened -= BELIEVED);
        assert!(kept.get("0", &BYTES).is_none());
        kept.keep("again".to_owned(), BYTES, (&blob, stamp));
        assert_eq!(kept.files.lock().unwrap().len(), 1, "what is not believed any more is closed");
        let large = File::create(folder.path().join("large")).unwrap();
        large.set_len(LARGEST + 1).unwrap();
        let (blob, stamp) = opened(&folder.path().join("large"));
        kept.keep("large".to_owned(), BYTES, (&blob, stamp));
        assert!(kept.get("large", &BYTES).is_none());
    }
}
