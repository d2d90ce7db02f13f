//! What `tests/certify` makes of its arguments before anything is run.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// Exit code, what was printed, and what was said of an error.
fn certify(arguments: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new("bash").arg("tests/certify").args(arguments).output().expect("bash");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// Names and times of the reports.
fn reports() -> Vec<(String, SystemTime)> {
    let folder = Path::new("docs/certification");
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .expect("the reports")
        .map(|entry| entry.expect("a report"))
        .map(|entry| {
            (entry.file_name().to_string_lossy().into_owned(), entry.metadata().unwrap().modified().expect("a time"))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_word_that_is_no_part_ends_with_the_usage_and_writes_no_report() {
    let before = reports();
    for arguments in
        [&["fuzz:nothing"][..], &["kills", "nothing"], &["--fast"], &["kills", "--list"], &["kills crowds"]]
    {
        let (code, printed, said) = certify(arguments);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{arguments:?}: {said}");
        assert!(said.contains("tests/certify --list"), "{said}");
    }
    let (code, printed, said) = certify(&["--help"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(printed.starts_with("tests/certify") && printed.contains("CERTIFY_FUZZ_SECONDS"), "{printed}");
    assert_eq!(reports(), before);
}
