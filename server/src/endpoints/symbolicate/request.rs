//! The request: modules, and stacks of offsets in them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::Refused;
use crate::ingest::parse_breakpad_id;
use crate::json_object::JsonObject;

/// The one version of the API.
const VERSION: u64 = 5;
/// Jobs in one request, as in Mozilla's servers.
const MAX_JOBS: usize = 10;
/// Modules in one job: far above any process.
const MAX_MODULES: usize = 100_000;
/// Frames in one request.
const MAX_FRAMES: usize = 1_000_000;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(super) jobs: Vec<Job>,
}

/// Stacks of one process.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Job {
    /// Name of the debug file, and the id as Breakpad writes it.
    #[serde(rename = "memoryMap")]
    pub(super) modules: Vec<(String, String)>,
    /// Frames as (module, offset from the image base); module −1: unknown, the offset is an address.
    pub(super) stacks: Vec<Vec<(i64, Offset)>>,
}

/// An offset, or none: −1 is what is sent of a frame whose offset is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i128")]
pub(super) struct Offset(pub(super) Option<u64>);

impl TryFrom<i128> for Offset {
    type Error = &'static str;

    fn try_from(sent: i128) -> Result<Self, Self::Error> {
        match sent {
            -1 => Ok(Self(None)),
            _ => u64::try_from(sent).map(|offset| Self(Some(offset))).map_err(|_| "an offset is −1, or has 64 bits"),
        }
    }
}

/// Several jobs, or the fields of a bare one: read straight into place, as a form that is tried one way and then another would be
/// kept in memory many times over.
#[derive(Deserialize)]
struct Body {
    version: Option<u64>,
    jobs: Option<Vec<JsonObject<Job>>>,
    #[serde(rename = "memoryMap")]
    modules: Option<Vec<(String, String)>>,
    stacks: Option<Vec<Vec<(i64, Offset)>>>,
}

impl Request {
    /// The ids of the modules that frames name, each with what its debug file is called.
    pub(super) fn named_modules(&self) -> BTreeMap<([u8; 16], u32), &str> {
        let mut found = BTreeMap::new();
        for job in &self.jobs {
            let named: BTreeSet<i64> = job.stacks.iter().flatten().map(|(index, _)| *index).collect();
            let modules = named.into_iter().filter_map(|index| job.modules.get(usize::try_from(index).ok()?));
            found.extend(modules.filter_map(|(name, id)| Some((parse_breakpad_id(id)?, name.as_str()))));
        }
        found
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Refused`] where it is malformed, or asks for too much.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refused> {
        let form = r#"{"jobs":[{"memoryMap":[["app.pdb","GUID and age"]],"stacks":[[[0,4096]]]}],"version":5}"#;
        let malformed = |found: String| Refused::Malformed(format!("expected {form}, found {found}"));
        let JsonObject(body): JsonObject<Body> =
            serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))?;
        if let Some(version) = body.version.filter(|version| *version != VERSION) {
            return Err(Refused::Malformed(format!("expected version {VERSION}, found {version}")));
        }
        let jobs = match (body.jobs, body.modules, body.stacks) {
            (Some(jobs), _, _) => jobs.into_iter().map(|JsonObject(job)| job).collect(),
            (None, Some(modules), Some(stacks)) => vec![Job { modules, stacks }],
            _ => return Err(malformed("neither jobs nor a memory map with stacks".to_owned())),
        };
        let modules = jobs.iter().map(|job| job.modules.len()).max().unwrap_or_default();
        let frames: usize = jobs.iter().flat_map(|job| &job.stacks).map(Vec::len).sum();
        for (what, found, most) in
            [("jobs", jobs.len(), MAX_JOBS), ("modules in a job", modules, MAX_MODULES), ("frames", frames, MAX_FRAMES)]
        {
            if found > most {
                let why =
                    format!("expected at most {most} {what} in one request, found {found}: ask in several requests");
                return Err(Refused::TooMuch(why));
            }
        }
        for job in &jobs {
            for (index, _) in job.stacks.iter().flatten() {
                if *index < -1 || usize::try_from(*index).is_ok_and(|index| index >= job.modules.len()) {
                    let why = format!("a frame names module {index} of {}", job.modules.len());
                    return Err(Refused::Malformed(why));
                }
            }
        }
        Ok(Self { jobs })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn several_jobs_and_a_bare_one_are_read() {
        let job =
            r#"{"memoryMap":[["app.pdb","A1"]],"stacks":[[[0,4096],[-1,140737],[0,-1],[0,18446744073709551615]],[]]}"#;
        let bare = Request::read(job.as_bytes()).unwrap();
        assert_eq!(bare.jobs.len(), 1);
        let of = |offset| Offset(Some(offset));
        assert_eq!(bare.jobs[0].stacks[0], [(0, of(4096)), (-1, of(140737)), (0, Offset(None)), (0, of(u64::MAX))]);
        assert_eq!(Request::read(format!(r#"{{"jobs":[{job}],"version":5}}"#).as_bytes()).unwrap(), bare);
    }

    #[test]
    fn what_is_no_request_is_told() {
        let job = |stacks: &str| format!(r#"{{"memoryMap":[["a","B"]],"stacks":{stacks}}}"#);
        for text in [
            "",
            "[]",
            "{}",
            r#"{"jobs":3}"#,
            r#"{"version":4,"jobs":[]}"#,
            &job("[[[1,0]]]"),
            &job("[[[-2,0]]]"),
            &job("[[[0,-2]]]"),
            &job("[[[0,18446744073709551616]]]"),
            &job("[[[0]]]"),
            &job("[[[0,1.5]]]"),
        ] {
            assert!(matches!(Request::read(text.as_bytes()), Err(Refused::Malformed(_))), "{text}");
        }
        let jobs = vec![job("[]"); 11].join(",");
        assert!(matches!(Request::read(format!(r#"{{"jobs":[{jobs}]}}"#).as_bytes()), Err(Refused::TooMuch(_))));
    }

    proptest! {
        #[test]
        fn no_body_breaks_the_reader(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::read(&body);
        }
    }
}
