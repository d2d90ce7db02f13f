//! A jitdump that is read in two parts, as it is while a runtime writes it.

use symseal_module::Avma;
use symseal_process::JitDump;

pub(super) fn run(bytes: &[u8]) {
    let (mut whole, mut parts) = (JitDump::new(), JitDump::new());
    let all = whole.read(bytes);
    let Ok(first) = parts.read(bytes.get(..bytes.len() / 2).unwrap_or_default()) else {
        assert!(all.is_err());
        return;
    };
    let second = parts.read(bytes.get(first..).unwrap_or_default());
    assert_eq!(second.map(|second| first + second), all);
    assert_eq!((whole.functions(), whole.bad_records()), (parts.functions(), parts.bad_records()));
    for address in [0x1000, 0x1040, 0x5010].map(Avma) {
        let line = whole.find(address).map(|hit| hit.line(address));
        assert_eq!(line, parts.find(address).map(|hit| hit.line(address)));
    }
}
