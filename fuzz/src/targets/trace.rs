//! Traces: what is read can be written, and reads the same again.

use symseal_trace::{Limits, Trace};

pub(super) fn run(data: &[u8]) {
    let limits = Limits { line_bytes: 1 << 20, total_bytes: 4 << 20, unknown_bytes: 1 << 20, ..Limits::default() };
    let Ok(trace) = Trace::read_named(data, "input", limits) else { return };
    let _ = trace.capture_summary();
    for sample in &trace.samples {
        for address in sample.registers.values() {
            let _ = sample.read_u64(*address);
        }
    }
    let mut written = Vec::new();
    if let Ok(end) = trace.write(&mut written) {
        let mut again = Trace::read(written.as_slice()).expect("what was written can be read");
        // Unknown fields are not written, so that count and digest may be others.
        assert_eq!(again.end, end);
        again.end = trace.end.clone();
        assert_eq!(again, trace);
    }
}
