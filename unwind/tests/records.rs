//! Where each rule comes from, and why code has none, over whole files of several formats and processors.

use crate::elf::{self, Binary};
use symseal_module::Rva;
use symseal_unwind::compile::MAX_UNSUPPORTED_LISTED;
use symseal_unwind::{Kind, Table};

/// Real files: with call frame information for all, some or none of their code, with `.pdr` and with `.ARM.exidx`.
const FILES: [&str; 9] = [
    elf::LIBC,
    elf::LOADER,
    "/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/aarch64-linux-gnu/lib/libc.so.6",
    "/usr/i686-linux-gnu/lib/libc.so.6",
    "/usr/mips-linux-gnu/lib/libc.so.6",
    "/usr/mipsel-linux-gnu/lib/libc.so.6",
    "/usr/riscv64-linux-gnu/lib/libc.so.6",
    "/usr/arm-linux-gnueabihf/lib/libc.so.6",
];

#[test]
fn every_rule_has_its_record_and_what_is_unsupported_its_reason() {
    for path in FILES {
        let Some(binary) = Binary::read(path) else {
            elf::skip(path, "not found");
            continue;
        };
        let compiled = binary.compile();
        let table = Table::open(&compiled.bytes).expect("our own table");
        let (mut ruled, mut unsupported) = (0, 0);
        for (at, rule, _) in table.rows() {
            match rule.kind() {
                Some(Kind::Gap) | None => continue,
                Some(Kind::Unsupported) => {
                    unsupported += 1;
                    let told = table.reason(at);
                    assert!(
                        told.is_some() || compiled.report.unsupported_count > MAX_UNSUPPORTED_LISTED,
                        "{path}: {at:?} has no reason"
                    );
                }
                Some(_) => ruled += 1,
            }
            let source = table.source(at).unwrap_or_else(|| panic!("{path}: {at:?} ({rule:?}) has no record"));
            assert!(source.start <= at, "{path}: {at:?} of {source:?}");
        }
        // Each row that the table marks is in the report, by a reason.
        let report = &compiled.report;
        assert!(unsupported == 0 || report.unsupported_count > 0, "{path}");
        assert_eq!(report.unsupported_reasons.values().sum::<usize>(), report.unsupported_count, "{path}");
        // Functions that could not be followed are gaps whose reason the table keeps.
        for function in &report.unfollowed_functions {
            let rva = Rva(function.range.start - table.image_base().0);
            assert!(table.reason(rva).is_some(), "{path}: {:x?}", function.range);
        }
        println!(
            "{path}: {ruled} rows with a record, {unsupported} unsupported, {} functions not followed, {} of {} bytes",
            report.unfollowed.values().sum::<usize>(),
            report.covered_bytes,
            report.text_bytes
        );
    }
}
