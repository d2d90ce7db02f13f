//! The request: modules, and stacks of offsets in them.
//!
//! What is read of it borrows its texts from the body, and has its frames one behind the other: a body of small parts would else take many times its size,
//! in as many pieces, which the memory's allocator then keeps.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, SeqAccess, Unexpected, Visitor};

use super::{BreakpadId, Refused};
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

/// Bytes that an opening bracket of a body may come to, in what is read of it: a frame, in a list that is as large again as what is in it.
const BRACKET_BYTES: usize = 48;
/// The same of a quotation mark: a fourth of a module, with what is found of it.
const QUOTE_BYTES: usize = 48;

/// How much memory what is read of a body, and the naming of it, may take at most. Those of small parts come to many times their size.
pub(super) fn memory_of(body: &[u8]) -> usize {
    let (mut brackets, mut quotes) = (0_usize, 0_usize);
    for byte in body {
        brackets = brackets.saturating_add(usize::from(*byte == b'['));
        quotes = quotes.saturating_add(usize::from(*byte == b'"'));
    }
    let parts = brackets.saturating_mul(BRACKET_BYTES).saturating_add(quotes.saturating_mul(QUOTE_BYTES));
    // Texts with escapes are copied.
    parts.saturating_add(body.len())
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'b> {
    pub(super) jobs: Vec<Job<'b>>,
}

/// Stacks of one process.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Job<'b> {
    /// Name of the debug file, and the id as Breakpad writes it.
    #[serde(rename = "memoryMap", borrow, deserialize_with = "modules")]
    pub(super) modules: Vec<Module<'b>>,
    pub(super) stacks: Stacks,
}

/// Name and id.
pub(super) type Module<'b> = (Text<'b>, Text<'b>);

/// A list of modules. One that is none is told by what it has to be, as frames are: "a tuple of size 2" says nothing to who sent it.
struct Modules<'b>(Vec<Module<'b>>);

impl<'de: 'b, 'b> Deserialize<'de> for Modules<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Modules<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of modules (memoryMap)")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut modules: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(module) = modules.next_element_seed(Pair(Part::Module, PhantomData))? {
                    all.push(module);
                }
                Ok(Modules(all))
            }
        }

        deserializer.deserialize_seq(All)
    }
}

fn modules<'de: 'b, 'b, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Module<'b>>, D::Error> {
    Modules::deserialize(deserializer).map(|modules| modules.0)
}

/// What consists of two.
#[derive(Clone, Copy)]
enum Part {
    Module,
    Frame,
}

struct Pair<T>(Part, PhantomData<T>);

impl<'de, A: Deserialize<'de>, B: Deserialize<'de>> DeserializeSeed<'de> for Pair<(A, B)> {
    type Value = (A, B);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(A, B), D::Error> {
        deserializer.deserialize_tuple(2, self)
    }
}

impl<'de, A: Deserialize<'de>, B: Deserialize<'de>> Visitor<'de> for Pair<(A, B)> {
    type Value = (A, B);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Part::Module => r#"a module of memoryMap, ["name of its debug file", "its id"]"#,
            Part::Frame => "a frame, [number of its module in memoryMap or -1, offset or -1]",
        })
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut parts: S) -> Result<(A, B), S::Error> {
        let first = parts.next_element()?.ok_or_else(|| S::Error::invalid_length(0, &self))?;
        let second = parts.next_element()?.ok_or_else(|| S::Error::invalid_length(1, &self))?;
        match parts.next_element::<IgnoredAny>()? {
            Some(_) => Err(S::Error::invalid_length(3, &self)),
            None => Ok((first, second)),
        }
    }
}

/// A text of the body, where it lies there if it can.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Text<'b>(Cow<'b, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Text<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Read)
    }
}

/// A frame as (module, offset from the image base); module −1: unknown, the offset is an address.
type Frame = (i64, Offset);

/// The frames of all stacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stacks {
    frames: Vec<Frame>,
    /// Where each stack ends among them.
    ends: Vec<u32>,
}

impl Stacks {
    /// The frames of all of them.
    pub(super) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// One after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[Frame]> {
        let mut from = 0;
        self.ends.iter().map(move |end| {
            let end = *end as usize;
            let stack = self.frames.get(from..end).unwrap_or_default();
            from = end;
            stack
        })
    }
}

impl<'de> Deserialize<'de> for Stacks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Stacks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of stacks")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut stacks: A) -> Result<Stacks, A::Error> {
                let mut all = Stacks::default();
                while stacks.next_element_seed(OneMore(&mut all.frames))?.is_some() {
                    all.ends.push(u32::try_from(all.frames.len()).map_err(A::Error::custom)?);
                }
                Ok(all)
            }
        }

        deserializer.deserialize_seq(All)
    }
}

/// A stack behind those that were read before.
struct OneMore<'f>(&'f mut Vec<Frame>);

impl<'de> DeserializeSeed<'de> for OneMore<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for OneMore<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of frames")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut stack: A) -> Result<(), A::Error> {
        while let Some(frame) = stack.next_element_seed(Pair(Part::Frame, PhantomData))? {
            self.0.push(frame);
        }
        Ok(())
    }
}

/// An offset, or none: −1 is what is sent of a frame whose offset is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Offset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl Visitor<'_> for Read {
            type Value = Offset;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an offset: -1, or a whole number below 2^64")
            }

            fn visit_u64<E>(self, offset: u64) -> Result<Offset, E> {
                Ok(Offset(Some(offset)))
            }

            fn visit_i64<E: serde::de::Error>(self, offset: i64) -> Result<Offset, E> {
                match (offset, u64::try_from(offset)) {
                    (-1, _) => Ok(Offset(None)),
                    (_, Ok(offset)) => Ok(Offset(Some(offset))),
                    _ => Err(E::invalid_value(Unexpected::Signed(offset), &self)),
                }
            }
        }

        deserializer.deserialize_any(Read)
    }
}

/// Several jobs, or the fields of a bare one: read straight into place, as a form that is tried one way and then another would be
/// kept in memory many times over.
#[derive(Deserialize)]
struct Body<'b> {
    version: Option<u64>,
    #[serde(borrow)]
    jobs: Option<Vec<JsonObject<Job<'b>>>>,
    #[serde(rename = "memoryMap", borrow)]
    modules: Option<Modules<'b>>,
    stacks: Option<Stacks>,
}

impl Job<'_> {
    /// Whether frames name modules that are there; of the first that does not, where it stands. All count from 0.
    fn check(&self) -> Result<(), String> {
        let modules = self.modules.len();
        let is_wrong = |index: i64| index < -1 || usize::try_from(index).is_ok_and(|index| index >= modules);
        for (stack, frames) in self.stacks.iter().enumerate() {
            if let Some((at, (index, _))) = frames.iter().enumerate().find(|(_, (index, _))| is_wrong(*index)) {
                let expected = match modules.checked_sub(1) {
                    Some(last) => format!("a module of memoryMap (0 to {last}) or -1"),
                    None => "-1, as memoryMap has no module".to_owned(),
                };
                return Err(format!("stack {stack}, frame {at}: expected {expected}, found module {index}"));
            }
        }
        Ok(())
    }
}

impl<'b> Request<'b> {
    /// The modules that frames name: id, and what the debug file is called.
    pub(super) fn named_modules(&self) -> BTreeSet<(BreakpadId, &str)> {
        let mut found = BTreeSet::new();
        for job in &self.jobs {
            let named: BTreeSet<i64> = job.stacks.frames().iter().map(|(index, _)| *index).collect();
            let modules = named.into_iter().filter_map(|index| job.modules.get(usize::try_from(index).ok()?));
            found.extend(modules.filter_map(|(name, id)| Some((parse_breakpad_id(id)?, &**name))));
        }
        found
    }

    /// Reads the body.
    ///
    /// # Errors
    /// [`Refused`] where it is malformed, or asks for too much.
    pub(crate) fn read(body: &'b [u8]) -> Result<Self, Refused> {
        let form = r#"{"jobs":[{"memoryMap":[["app.pdb","GUID and age"]],"stacks":[[[0,4096]]]}],"version":5}"#;
        let malformed = |found: String| Refused::Malformed(format!("expected {form}, found {found}"));
        let JsonObject(body): JsonObject<Body<'_>> =
            serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))?;
        if let Some(version) = body.version.filter(|version| *version != VERSION) {
            return Err(Refused::Malformed(format!("expected version {VERSION}, found {version}")));
        }
        let jobs = match (body.jobs, body.modules, body.stacks) {
            (Some(jobs), _, _) => jobs.into_iter().map(|JsonObject(job)| job).collect(),
            (None, Some(Modules(modules)), Some(stacks)) => vec![Job { modules, stacks }],
            _ => return Err(malformed("neither jobs nor a memory map with stacks".to_owned())),
        };
        let modules = jobs.iter().map(|job| job.modules.len()).max().unwrap_or_default();
        let frames: usize = jobs.iter().map(|job| job.stacks.frames().len()).sum();
        for (what, found, most) in
            [("jobs", jobs.len(), MAX_JOBS), ("modules in a job", modules, MAX_MODULES), ("frames", frames, MAX_FRAMES)]
        {
            if found > most {
                let why =
                    format!("expected at most {most} {what} in one request, found {found}: ask in several requests");
                return Err(Refused::TooMuch(why));
            }
        }
        for (number, job) in jobs.iter().enumerate() {
            job.check().map_err(|why| Refused::Malformed(format!("job {number}, {why}")))?;
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
        let stacks: Vec<&[Frame]> = bare.jobs[0].stacks.iter().collect();
        assert_eq!(stacks[1], []);
        assert_eq!(stacks[0], [(0, of(4096)), (-1, of(140737)), (0, Offset(None)), (0, of(u64::MAX))]);
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

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_what_it_has_to_be() {
        let told = |modules: &str, stacks: &str| {
            let body = format!(r#"{{"memoryMap":{modules},"stacks":{stacks}}}"#);
            Request::read(body.as_bytes()).unwrap_err().to_string()
        };
        let one = r#"[["a","B"]]"#;
        for (modules, stacks, expected) in [
            (
                one,
                "[[[0,1]],[[0,2],[9,5]]]",
                "job 0, stack 1, frame 1: expected a module of memoryMap (0 to 0) or -1, found module 9",
            ),
            ("[]", "[[[0,1]]]", "job 0, stack 0, frame 0: expected -1, as memoryMap has no module, found module 0"),
            (
                one,
                "[[[0]]]",
                "invalid length 1, expected a frame, [number of its module in memoryMap or -1, offset or -1] at line 1 column",
            ),
            (one, "[[[0,1,2]]]", "invalid length 3, expected a frame, ["),
            (one, "[[3]]", "expected a frame, ["),
            (
                r#"[["a"]]"#,
                "[]",
                r#"invalid length 1, expected a module of memoryMap, ["name of its debug file", "its id"] at line 1"#,
            ),
            (r#"[["a","B","c"]]"#, "[]", "invalid length 3, expected a module of memoryMap, ["),
            ("3", "[]", "expected a list of modules (memoryMap)"),
            (one, "[[[0,1.5]]]", "expected an offset: -1, or a whole number below 2^64"),
            (one, "[[[0,-2]]]", "expected an offset: -1, or a whole number below 2^64"),
        ] {
            let told = told(modules, stacks);
            assert!(told.contains(expected), "{modules} {stacks}: {told}");
        }
    }

    #[test]
    fn what_is_read_takes_no_more_than_was_foreseen_and_few_bodies_too_much() {
        let many = |part: &str, times: usize| vec![part; times].join(",");
        let body =
            |modules: &str, stacks: &str| format!(r#"{{"jobs":[{{"memoryMap":[{modules}],"stacks":[{stacks}]}}]}}"#);
        let named = r#"["app.pdb","72E103A85CB249078B76B2E7C06257B11"]"#;
        for body in [
            body(&many(named, 100_000), ""),
            body(&many(r#"["",""]"#, 70_000), ""),
            body(&many(r#"["\\n","\\n"]"#, 70_000), ""),
            body(r#"["",""]"#, &many("[[0,0]]", 70_000)),
            body(r#"["",""]"#, &format!("[{}]", many("[0,0]", 1_000_000))),
            body("", &many("[]", 70_000)),
        ] {
            let request = Request::read(body.as_bytes()).unwrap();
            let job = &request.jobs[0];
            let copied = |text: &Text<'_>| if matches!(text.0, Cow::Owned(_)) { text.len() + 32 } else { 0 };
            let texts: usize = job.modules.iter().map(|(name, id)| copied(name) + copied(id)).sum();
            let modules = job.modules.capacity() * size_of::<(Text<'_>, Text<'_>)>() + texts;
            let stacks = job.stacks.frames.capacity() * size_of::<Frame>() + job.stacks.ends.capacity() * 4;
            let foreseen = memory_of(body.as_bytes());
            assert!(modules + stacks <= foreseen, "{} bytes of {foreseen}: {}", modules + stacks, &body[..60]);
            assert!(foreseen <= 64 << 20, "{foreseen}");
        }
    }

    proptest! {
        #[test]
        fn no_body_breaks_the_reader(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::read(&body);
        }
    }
}
