//! What is written is what the published schema and the promised fields say.

use std::path::Path;

use serde_json::Value;
use symseal_trace::{Event, Trace};

use crate::example::{trace, written};

fn schema() -> jsonschema::Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/schemas/trace_event.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

#[track_caller]
fn check_lines(bytes: &[u8]) {
    let schema = schema();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).unwrap();
        let errors: Vec<String> =
            schema.iter_errors(&line).map(|error| format!("{} {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{line}: {errors:#?}");
    }
}

#[test]
fn every_event_holds_to_the_schema() {
    check_lines(&written(&trace()));
    // Little is known of this one: every optional field is absent or null.
    let mut bare = Trace::default();
    bare.begin.platform = "linux".into();
    bare.begin.arch = "x86_64".into();
    bare.begin.method = "ptrace".into();
    bare.begin.captured_at = "2026-11-20T12:21:10Z".into();
    bare.modules = vec![Default::default()];
    bare.jit = vec![symseal_trace::TraceJit { size: 1, name: "f".into(), ..Default::default() }];
    bare.samples = vec![Default::default()];
    let mut summary = bare.capture_summary();
    summary.frames = vec![Default::default()];
    bare.after =
        vec![Event::Capture(summary), Event::Resolved(Default::default()), Event::ReplayResult(Default::default())];
    check_lines(&written(&bare));
}

#[test]
fn the_schema_is_no_empty_promise() {
    let schema = schema();
    for line in [
        r#"{}"#,
        r#"{"event":"trace.end","lost":0,"count":1,"digest":"sha256:00"}"#,
        r#"{"event":"trace.end","lost":-1,"count":1}"#,
        r#"{"event":"trace.module","path":"a\\b","start":"0x0","end":"0x1","bias":"0x0","image_base":"0x0"}"#,
        r#"{"event":"trace.module","path":"a","start":"0X0","end":"0x1","bias":"0x0","image_base":"0x0"}"#,
        r#"{"event":"trace.code","start":"0x1000"}"#,
        r#"{"event":"trace.jit","start":"0x1000","size":0,"name":"f"}"#,
        r#"{"event":"trace.sample","thread":1,"registers":{"rip":1},"stacks":[]}"#,
    ] {
        assert!(!schema.is_valid(&serde_json::from_str(line).unwrap()), "{line}");
    }
    assert!(schema.is_valid(&serde_json::from_str(r#"{"event":"something.else","a":1}"#).unwrap()));
}

/// The names of an event's fields, in their order.
fn fields(kind: &str) -> Vec<String> {
    let bytes = written(&trace());
    let text = String::from_utf8(bytes).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{{\"event\":\"{kind}\""))).unwrap();
    // serde_json's map would sort them; the positions in the text are the order.
    let value: Value = serde_json::from_str(line).unwrap();
    let mut names: Vec<(usize, String)> = value
        .as_object()
        .unwrap()
        .keys()
        .map(|name| (line.find(&format!("\"{name}\":")).unwrap(), name.clone()))
        .collect();
    names.sort();
    names.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn the_promised_fields_come_first_and_under_their_names() {
    let capture = ["event", "trace_id", "platform", "build_id", "frames", "symbol_bundle_ref", "dsse_ref"];
    assert_eq!(fields("trace.capture")[..7], capture);
    let replay =
        ["event", "replay_id", "trace_id", "seed", "replay_success_ratio", "symbol_coverage_pct", "verify_time_ms"];
    assert_eq!(fields("replay.result")[..7], replay);
}

#[test]
fn the_two_promised_examples_are_read() {
    let capture = br#"{"event":"trace.capture","trace_id":"4c74d45d-5887-4868-a16d-10189fd21332","platform":"linux","build_id":"93ac","frames":[{"ip":"0x1","module":"/usr/bin/foo","module_build_id":"93ac"}],"symbol_bundle_ref":null,"dsse_ref":null}"#;
    assert!(matches!(Event::parse(capture), Ok(Event::Capture(capture)) if capture.frames.len() == 1));
    let replay = br#"{"event":"replay.result","replay_id":"4c74d45d-5887-4868-a16d-10189fd21332","trace_id":"4c74d45d-5887-4868-a16d-10189fd21332","seed":42,"replay_success_ratio":0.98,"symbol_coverage_pct":93,"verify_time_ms":8423}"#;
    assert!(matches!(Event::parse(replay), Ok(Event::ReplayResult(replay)) if replay.symbol_coverage_pct == 93.0));
}

#[test]
fn the_example_of_the_documents_is_a_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/trace.md");
    let page = std::fs::read_to_string(path).unwrap();
    let example: String =
        page.lines().filter_map(|line| line.strip_prefix("    {")).map(|line| format!("{{{line}\n")).collect();
    let trace = Trace::read(example.as_bytes()).unwrap();
    assert_eq!(trace.samples.len(), 1);
    check_lines(example.as_bytes());
}
