//! Streams of every form are read; streams that are not whole are told by what is wrong.

use std::io::{self, Read, Write};

use symseal_trace::{Compression, Event, EventReader, Limits, Problem, Trace};

use crate::example::{other, trace, written};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

fn problem(bytes: &[u8]) -> (u64, Problem) {
    let error = Trace::read(bytes).unwrap_err();
    (error.line, error.problem)
}

#[test]
fn plain_gzip_and_zstd_streams_give_the_same_trace() {
    let (trace, bytes) = (trace(), written(&trace()));
    assert_eq!(Trace::read(bytes.as_slice()).unwrap(), trace);
    assert_eq!(Trace::read(gzip(&bytes).as_slice()).unwrap(), trace);
    assert_eq!(Trace::read(zstd(&bytes).as_slice()).unwrap(), trace);
    // Parts that were compressed one by one and joined.
    let (head, tail) = bytes.split_at(bytes.len() / 3);
    assert_eq!(Trace::read([gzip(head), gzip(tail)].concat().as_slice()).unwrap(), trace);
    assert_eq!(Trace::read([zstd(head), zstd(tail)].concat().as_slice()).unwrap(), trace);
}

#[test]
fn a_trace_is_written_in_the_form_that_is_asked_for() {
    for compression in [Compression::Plain, Compression::Gzip, Compression::Zstd] {
        let mut bytes = Vec::new();
        trace().write_compressed(&mut bytes, compression).unwrap();
        assert_eq!(Compression::of(&bytes), compression);
        assert_eq!(Trace::read(bytes.as_slice()).unwrap(), trace());
    }
}

#[test]
fn a_source_that_gives_single_bytes_is_read() {
    struct Drip<'a>(&'a [u8]);
    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let wanted = out.len().min(1);
            self.0.read(&mut out[..wanted])
        }
    }
    assert_eq!(Trace::read(Drip(&zstd(&written(&trace())))).unwrap(), trace());
    assert_eq!(Trace::read(Drip(&written(&trace()))).unwrap(), trace());
}

#[test]
fn errors_name_the_file_and_the_line() {
    let mut bytes = written(&trace());
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    bytes[second] = b'[';
    let error = Trace::read_named(bytes.as_slice(), "some/trace.jsonl", Limits::default()).unwrap_err();
    assert!(error.to_string().starts_with("some/trace.jsonl:2: expected a JSON object"), "{error}");
}

#[test]
fn a_changed_byte_is_a_wrong_digest() {
    let text = String::from_utf8(written(&trace())).unwrap();
    let changed = text.replacen("\"pid\":4278", "\"pid\":4279", 1);
    assert!(matches!(problem(changed.as_bytes()), (8, Problem::Digest { .. })));
}

#[test]
fn a_lost_line_is_a_wrong_count() {
    let text = String::from_utf8(written(&trace())).unwrap();
    let shorter: String =
        text.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
    assert!(matches!(problem(shorter.as_bytes()), (7, Problem::Count { expected: 7, found: 6 })));
}

#[test]
fn a_stream_that_stops_early_is_truncated_wherever_it_stops() {
    let mut trace = trace();
    trace.after.clear();
    let bytes = written(&trace);
    for end in 0..bytes.len() {
        let (_, problem) = problem(&bytes[..end]);
        assert!(matches!(problem, Problem::Truncated | Problem::NoEnd), "{end}: {problem}");
    }
    for packed in [gzip(&bytes), zstd(&bytes)] {
        for end in (5..packed.len()).step_by(7) {
            assert!(Trace::read(&packed[..end]).is_err(), "{end}");
        }
    }
}

#[test]
fn events_out_of_their_order_are_refused() {
    let text = String::from_utf8(written(&trace())).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let twice = format!("{}{text}", lines[0]);
    assert!(matches!(problem(twice.as_bytes()), (2, Problem::Order { .. })));
    let module_first = format!("{}{text}", lines[1]);
    assert!(matches!(problem(module_first.as_bytes()), (1, Problem::Order { .. })));
    let module_last = format!("{text}{}", lines[1]);
    assert!(matches!(problem(module_last.as_bytes()), (13, Problem::Order { .. })));
    let two_traces = format!("{text}{text}");
    assert!(matches!(problem(two_traces.as_bytes()), (13, Problem::Order { .. })));
}

#[test]
fn what_is_no_trace_is_refused() {
    for bytes in [
        &b""[..],
        b"\n",
        b"x\n",
        b"{}\n",
        b"{\"event\":1}\n",
        b"[]\n",
        b"\x7fELF\x02\x01",
        b"\x1f\x8b",
        b"\x28\xb5\x2f\xfd",
    ] {
        assert!(Trace::read(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_stream_without_a_capture_is_read_as_events() {
    let mut bytes = Vec::new();
    for event in &trace().after {
        bytes.extend(event.to_line().unwrap());
    }
    let events: Vec<Event> =
        EventReader::new(bytes.as_slice(), "events", Limits::default()).unwrap().map(Result::unwrap).collect();
    assert_eq!(events, trace().after);
    assert!(matches!(problem(&bytes), (_, Problem::NoCapture)));
}

#[test]
fn unknown_fields_are_ignored_and_unknown_kinds_kept() {
    let line = br#"{"later":{"a":[1]},"event":"trace.end","lost":2,"count":3,"digest":"sha256:00","more":1}"#;
    assert!(matches!(Event::parse(line), Ok(Event::End(end)) if end.lost == 2));
    let line = r#"{"event":"trace.weather","sun":true}"#;
    let event = Event::parse(line.as_bytes()).unwrap();
    assert_eq!(event, other(line));
    assert_eq!(event.kind(), "trace.weather");
    assert_eq!(String::from_utf8(event.to_line().unwrap()).unwrap().trim_end(), line);
}

#[test]
fn numbers_that_json_cannot_hold_are_not_written() {
    let mut result = symseal_trace::ReplayResult { replay_success_ratio: f64::NAN, ..Default::default() };
    assert!(Event::ReplayResult(result.clone()).to_line().is_err());
    result.replay_success_ratio = 1.0;
    assert!(Event::ReplayResult(result).to_line().is_ok());
}

#[test]
fn a_full_disk_is_reported() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    assert!(trace().write(Full).unwrap_err().to_string().starts_with("cannot write the trace"));
}

#[test]
fn frames_with_codes_of_a_later_version_are_kept_as_they_are() {
    let Some(line) =
        trace().after.iter().find(|event| event.kind() == "trace.resolved").map(|event| event.to_line().unwrap())
    else {
        panic!("the example has such an event");
    };
    let text = String::from_utf8(line).unwrap();
    let later = text.replace("\"context\"", "\"by-magic\"").replace("\"sealed\"", "\"notarised\"");
    let event = Event::parse(later.as_bytes()).unwrap();
    assert!(matches!(&event, Event::Other(value) if value["frames"][0]["unwind"] == "by-magic"));
    assert_eq!(event.kind(), "trace.resolved");
    let stopped = text.replace("\"truncated-stack\"", "\"bored\"");
    let event = Event::parse(stopped.as_bytes()).unwrap();
    assert!(matches!(&event, Event::Other(value) if value["stacks"][0]["stop"] == "bored"));
    let broken = later.replace("\"ip\":", "\"no\":");
    assert!(Event::parse(broken.as_bytes()).unwrap_err().to_string().starts_with("malformed trace.resolved"));
}

/// As earlier versions wrote them, and as a producer may that does not unwind.
#[test]
fn a_resolved_trace_without_ends_of_stacks_and_places_of_frames_is_read() {
    let of = trace().after.into_iter().find(|event| event.kind() == "trace.resolved");
    let Some(Event::Resolved(mut whole)) = of else { panic!("the example has such an event") };
    let mut value: serde_json::Value =
        serde_json::from_slice(&Event::Resolved(whole.clone()).to_line().unwrap()).unwrap();
    value.as_object_mut().unwrap().remove("stacks").unwrap();
    let row = value["frames"][0].as_object_mut().unwrap();
    assert!(row.remove("exact").is_some() && row.remove("cfa").is_some() && !row.contains_key("frame_pointer"));
    whole.stacks.clear();
    (whole.frames[0].exact, whole.frames[0].cfa) = (None, None);
    assert_eq!(Event::parse(value.to_string().as_bytes()).unwrap(), Event::Resolved(whole));
}
