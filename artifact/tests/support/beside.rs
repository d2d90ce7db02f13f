//! Which of the lent inputs belong together.

/// The files beside an input: a supplementary one, and split ones.
pub(crate) fn companions(file: &str) -> (Option<&'static str>, &'static [&'static str]) {
    match file {
        "dump_syms/test_data/linux/basic.dwz" => (None, &[]),
        "elf-var/a1.debug" | "elf-var/a2.debug" => (Some("elf-var/alt.dwz"), &[]),
        "elfutils/tests/testfile_multi_main" => (Some("elfutils/tests/testfile_multi.dwz"), &[]),
        "samply/fixtures/other/ls-linux/260a3e6e46db57abf718f6a3562c6eedccf269.debug" => {
            (Some("samply/fixtures/other/ls-linux/coreutils.debug"), &[])
        }
        "elf-var/split/fix4.o" => (None, &["elf-var/split/fix4.dwo"]),
        "elf-var/split/fix5.o" => (None, &["elf-var/split/fix5.dwo"]),
        "elf-var/split/linux_entry4.o" => (None, &["elf-var/split/linux_entry4.dwo"]),
        "elf-var/split/linux_entry5.o" => (None, &["elf-var/split/linux_entry5.dwo"]),
        "elf-var/split/split4" => (None, &["elf-var/split/split4.dwp"]),
        "elf-var/split/split5" => (None, &["elf-var/split/split5.dwp"]),
        "samply/fixtures/other/simple-example/out/with-dwo/main.o" => {
            (None, &["samply/fixtures/other/simple-example/out/with-dwo/main.dwo"])
        }
        "samply/fixtures/other/simple-example/out/with-dwo/file1.o" => {
            (None, &["samply/fixtures/other/simple-example/out/with-dwo/file1.dwo"])
        }
        "samply/fixtures/other/simple-example/out/with-dwo/file2.o" => {
            (None, &["samply/fixtures/other/simple-example/out/with-dwo/file2.dwo"])
        }
        "samply/fixtures/other/simple-example/out/with-dwo/file3.o" => {
            (None, &["samply/fixtures/other/simple-example/out/with-dwo/file3.dwo"])
        }
        "object-testfiles/dwarf/base-clang-split-v4" => (None, &["object-testfiles/dwarf/base-clang-split-v4.dwp"]),
        "object-testfiles/dwarf/base-clang-split-v5" => (None, &["object-testfiles/dwarf/base-clang-split-v5.dwp"]),
        "object-testfiles/dwarf/base-gcc-split" => (None, &["object-testfiles/dwarf/base-gcc-split.dwp"]),
        "samply/fixtures/other/simple-example/out/with-dwo/main" => (
            None,
            &[
                "samply/fixtures/other/simple-example/out/with-dwo/main.dwo",
                "samply/fixtures/other/simple-example/out/with-dwo/file1.dwo",
                "samply/fixtures/other/simple-example/out/with-dwo/file2.dwo",
                "samply/fixtures/other/simple-example/out/with-dwo/file3.dwo",
            ],
        ),
        "samply/fixtures/other/simple-example/out/with-dwp/main" => {
            (None, &["samply/fixtures/other/simple-example/out/with-dwp/main.dwp"])
        }
        _ => (None, &[]),
    }
}
