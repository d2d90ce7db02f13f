//! A perf map that is read in two parts, as it is while a runtime writes it.

use symseal_module::Avma;
use symseal_process::PerfMap;

pub(super) fn run(bytes: &[u8]) {
    let (mut whole, mut parts) = (PerfMap::new(), PerfMap::new());
    let used = whole.read(bytes);
    let first = parts.read(bytes.get(..bytes.len() / 2).unwrap_or_default());
    let second = parts.read(bytes.get(first..).unwrap_or_default());
    assert_eq!((first + second, parts.functions()), (used, whole.functions()));
    for address in [0x1000, 0x1010, 0x7f49_ec00_5b80].map(Avma) {
        let (one, other) = (whole.find(address), parts.find(address));
        assert_eq!(one.map(|hit| &hit.function.name), other.map(|hit| &hit.function.name));
        assert!(one.is_none_or(|hit| hit.function.start <= address));
    }
}
