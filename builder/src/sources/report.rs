//! What became of the sources that were asked for. It names paths of this machine, and is no part of the bundle.

use serde::Serialize;
use symseal_bundle::Digest;
use symseal_bundle::sources::SourcesStatistics;

/// What was found and what was not. Every file that was wanted is stored or stands in one of the lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SourcesReport {
    /// Files that the line tables name: those that are stored and those in the lists. A path counts once, or, where checksums
    /// tell several files of it apart and one of them is there, once for each.
    pub wanted: u64,
    /// What is in the artifact.
    pub statistics: SourcesStatistics,
    /// Digest of the artifact's manifest, also where it was not stored; none where no file was found.
    pub digest: Option<Digest>,
    /// Paths at which no file lies below the given directories.
    pub not_found: Vec<String>,
    /// Files that are not those that were compiled, each once for every checksum that is missed. They are left out, where they are
    /// not what another module names by the path.
    pub mismatched: Vec<MismatchedSource>,
    /// Files that were not read. They are left out.
    pub refused: Vec<RefusedSource>,
    /// Files of more bytes than a source may have. They are left out.
    pub too_large: Vec<LargeSource>,
}

/// A file with another checksum than the debug information says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MismatchedSource {
    /// As the line tables name it.
    pub path: String,
    /// The file that was found; bytes of its path that are no text are escaped.
    pub file: String,
    /// The checksum that the debug information carries: `md5:`, `sha1:` or `sha256:` and hex digits.
    pub expected: String,
    /// The checksum that the file has, of the same kind.
    pub found: String,
}

/// A file that is not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedSource {
    /// As the line tables name it.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A file that is too large for a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LargeSource {
    /// As the line tables name it.
    pub path: String,
    /// At least so many bytes.
    pub bytes: u64,
}

impl SourcesReport {
    pub(super) fn refuse(&mut self, path: &str, reason: String) {
        let path = path.chars().take(symseal_bundle::sources::MAX_PATH_BYTES).collect();
        self.refused.push(RefusedSource { path, reason });
    }
}
