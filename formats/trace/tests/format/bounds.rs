//! No stream makes its reader work or allocate without bound.

use symseal_trace::{Limits, Problem, Trace};

use crate::example::{other, trace, written};

#[track_caller]
fn check_refused(limits: Limits, what: &str) {
    let error = Trace::read_named(written(&trace()).as_slice(), "trace", limits).unwrap_err();
    match error.problem {
        Problem::TooLarge { what: found, .. } => assert_eq!(found, what),
        other => panic!("{other}"),
    }
}

#[test]
fn each_bound_is_kept() {
    check_refused(Limits { line_bytes: 100, ..Limits::default() }, "bytes in one line");
    check_refused(Limits { total_bytes: 600, ..Limits::default() }, "bytes in all");
    check_refused(Limits { modules: 1, ..Limits::default() }, "modules");
    check_refused(Limits { code: 0, ..Limits::default() }, "mappings of code without a file");
    check_refused(Limits { jit: 0, ..Limits::default() }, "functions of JIT compilers");
    check_refused(Limits { samples: 0, ..Limits::default() }, "samples");
    check_refused(Limits { segments: 1, ..Limits::default() }, "stack segments in one sample");
    check_refused(Limits { registers: 1, ..Limits::default() }, "registers in one sample");
    check_refused(Limits { unknown_bytes: 50, ..Limits::default() }, "bytes of unknown kinds");
}

#[test]
fn a_stream_of_exactly_the_bound_is_read() {
    let bytes = written(&trace());
    let longest = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap();
    let limits = Limits {
        line_bytes: longest as u64,
        total_bytes: bytes.len() as u64,
        modules: 2,
        samples: 1,
        segments: 2,
        registers: 2,
        ..Limits::default()
    };
    assert_eq!(Trace::read_named(bytes.as_slice(), "trace", limits).unwrap(), trace());
}

#[test]
fn a_small_stream_that_unpacks_to_a_huge_one_is_refused() {
    let huge = vec![b' '; 64 << 20];
    let packed = zstd::encode_all(huge.as_slice(), 3).unwrap();
    assert!(packed.len() < 1 << 16);
    let limits = Limits { line_bytes: 1 << 20, ..Limits::default() };
    let error = Trace::read_named(packed.as_slice(), "trace", limits).unwrap_err();
    assert!(matches!(error.problem, Problem::TooLarge { what: "bytes in one line", .. }), "{error}");
}

#[test]
fn deep_nesting_is_refused() {
    let deep = format!("{{\"event\":\"x\",\"a\":{}1{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Trace::read(deep.as_bytes()).is_err());
    let mut trace = trace();
    trace.inside = vec![other(&format!("{{\"event\":\"x\",\"a\":{}1{}}}", "[".repeat(50), "]".repeat(50)))];
    assert!(Trace::read(written(&trace).as_slice()).is_ok());
}
