//! What is left out of the inputs: files, directories and members of archives.

use std::path::{Path, PathBuf};

use crate::inputs::{Release, builder, compile, run, tool};
use symseal_builder::{BuildError, BuildReport, Exclude};
use symseal_bundle::LayoutDir;

/// The report with these patterns.
fn report(paths: &[PathBuf], globs: &[&str]) -> Result<BuildReport, BuildError> {
    builder(paths).exclude(Exclude::new(globs.iter().copied()).unwrap()).report()
}

/// The names of the modules that a report has.
fn names(report: &BuildReport) -> Vec<&str> {
    let mut names: Vec<&str> = report.modules.iter().map(|module| module.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn files_and_directories_are_left_out_and_counted_also_by_a_pattern_that_finds_nothing() {
    let Some(release) = Release::make() else { return };
    std::fs::create_dir(release.path("tests")).unwrap();
    std::fs::rename(release.path("bare.so"), release.path("tests/bare.so")).unwrap();
    let all = [release.dir.path().to_owned()];
    assert_eq!(names(&report(&all, &[]).unwrap()), ["bare.so", "full.so", "split.so"]);
    let found = report(&all, &["full.*", "tests", "*.dll"]).unwrap();
    assert_eq!(names(&found), ["split.so"]);
    let excluded: Vec<(&str, u64)> =
        found.inputs.excluded.iter().map(|(glob, count)| (glob.as_str(), *count)).collect();
    assert_eq!(excluded, [("*.dll", 0), ("full.*", 1), ("tests", 1)]);
    assert_eq!(found.inputs.files, 2);
    // Also what was named.
    assert_eq!(
        names(&report(&[release.path("full.so"), release.path("split.so")], &["full.so"]).unwrap()),
        ["split.so"]
    );
    let nothing = report(&all, &["**"]).unwrap_err();
    assert!(matches!(nothing, BuildError::NoModules { .. }), "{nothing}");
    assert!(nothing.to_string().contains("the pattern ** left out 1 of the files and directories"), "{nothing}");
}

#[test]
fn a_member_that_contradicts_another_can_be_left_out_of_an_archive() {
    let (Some(release), Some(tar), Some(cc)) = (Release::make(), tool("tar"), tool("cc")) else { return };
    // Other code under the same id: nobody can say which of them was shipped.
    let copy = release.path("old");
    std::fs::create_dir(&copy).unwrap();
    compile(&cc, &copy, "full.so", "int other(void) { return 1; }", &["-g", "-Wl,--build-id=0xaa01020304"]);
    let archive = release.path("release.tar");
    run(&tar, &["-cf", text(&archive), "-C", text(release.dir.path()), "full.so", "split.so", "split.debug", "old"]);
    let archive = [archive];
    let error = report(&archive, &[]).unwrap_err();
    assert!(matches!(error, BuildError::Conflict { .. }), "{error}");
    assert!(error.to_string().contains("--exclude"), "{error}");
    let found = report(&archive, &["release.tar!/old/**"]).unwrap();
    assert_eq!((names(&found), found.inputs.excluded["release.tar!/old/**"]), (vec!["full.so", "split.so"], 1));
    // The bundle is that of the other files alone.
    let built = |paths: &[PathBuf], globs: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let layout = LayoutDir::create(dir.path()).unwrap();
        builder(paths).exclude(Exclude::new(globs.iter().copied()).unwrap()).build(&layout).unwrap().digest
    };
    let loose = ["full.so", "split.so", "split.debug"].map(|name| release.path(name));
    assert_eq!(built(&archive, &["old"]), built(&loose, &[]));
}

#[test]
fn an_archive_within_an_archive_is_left_out_before_it_is_looked_into() {
    let (Some(release), Some(tar), Some(xz), Some(ar)) = (Release::make(), tool("tar"), tool("xz"), tool("ar")) else {
        return;
    };
    // More zeros than an archive may unpack to: to look into it would end the build.
    std::fs::write(release.path("zeros"), vec![0_u8; 80 << 20]).unwrap();
    let at = |name: &str| release.path(name);
    run(&tar, &["-cf", text(&at("bomb.tar")), "-C", text(release.dir.path()), "zeros"]);
    run(&xz, &["-1", text(&at("bomb.tar"))]);
    run(&ar, &["rc", text(&at("some.a")), text(&at("bare.so"))]);
    let files = ["bomb.tar.xz", "some.a", "full.so"];
    run(&tar, &[&["-cf", text(&at("release.tar")), "-C", text(release.dir.path())], &files[..]].concat());
    let archive = [at("release.tar")];
    let error = report(&archive, &["*.a"]).unwrap_err();
    assert!(matches!(error, BuildError::Archive { .. }), "{error}");
    let found = report(&archive, &["bomb.tar.xz", "*.a"]).unwrap();
    assert_eq!(names(&found), ["full.so"]);
    let excluded = &found.inputs.excluded;
    assert_eq!((excluded["bomb.tar.xz"], excluded["*.a"]), (1, 1));
    assert!(found.inputs.archives.iter().all(|archive| archive.passed_over.is_empty()), "{found:#?}");
}

#[test]
fn of_a_file_with_several_names_in_an_archive_the_other_names_may_be_left_out_and_the_first_is_not_forgotten() {
    let Some(release) = Release::make() else { return };
    let Some(tar) = tool("tar") else { return };
    std::fs::hard_link(release.path("full.so"), release.path("other.so")).unwrap();
    let archive = release.path("links.tar");
    run(&tar, &["-C", text(release.dir.path()), "-cf", text(&archive), "full.so", "other.so", "bare.so"]);
    let all = [archive];
    assert_eq!(names(&report(&all, &["other.so"]).unwrap()), ["bare.so", "full.so"]);
    // Its bytes have gone by under the name that is left out.
    let found = report(&all, &["full.so"]).unwrap();
    assert_eq!(names(&found), ["bare.so"]);
    let [passed_over] = found.inputs.archives[0].passed_over.as_slice() else { panic!("{found:#?}") };
    assert!(passed_over.place.ends_with("links.tar!/other.so"), "{passed_over:?}");
    assert!(passed_over.reason.contains("leave out both names or neither"), "{passed_over:?}");
    assert!(!found.is_complete());
    // Of both nothing is told.
    let found = report(&all, &["full.so", "other.so"]).unwrap();
    assert!(found.inputs.archives[0].passed_over.is_empty(), "{found:#?}");
}

#[test]
fn a_pattern_that_ends_in_a_slash_leaves_out_directories_and_archives_alone() {
    let (Some(release), Some(tar)) = (Release::make(), tool("tar")) else { return };
    let at = |name: &str| release.path(name);
    std::fs::create_dir_all(at("in/sub/sub")).unwrap();
    std::fs::rename(at("bare.so"), at("in/sub/sub/bare.so")).unwrap();
    std::fs::rename(at("full.so"), at("in/full.so")).unwrap();
    run(&tar, &["-cf", text(&at("in/release.tar")), "-C", text(release.dir.path()), "split.so"]);
    let inputs = [at("in")];
    for glob in ["sub/", "in/sub/", "./in/sub", "./sub/"] {
        let found = report(&inputs, &[glob]).unwrap();
        assert_eq!((names(&found), found.inputs.excluded[glob]), (vec!["full.so", "split.so"], 1), "{glob}");
    }
    assert_eq!(names(&report(&inputs, &["release.tar/"]).unwrap()), ["bare.so", "full.so"]);
    let found = report(&inputs, &["full.so/"]).unwrap();
    assert_eq!((names(&found), found.inputs.excluded["full.so/"]), (vec!["bare.so", "full.so", "split.so"], 0));
}

#[test]
#[cfg(unix)]
fn a_path_that_is_longer_than_the_system_takes_is_told_in_short_with_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let part = "d".repeat(200);
    let script = format!("for i in $(seq 30); do mkdir {part}; cd -P {part} || exit 1; done; echo text > last");
    let made = std::process::Command::new("bash").args(["-c", &script]).current_dir(dir.path()).status().unwrap();
    assert!(made.success());
    let error = crate::inputs::builder(&[dir.path().to_owned()]).report().unwrap_err().to_string();
    assert!(error.contains("--exclude") && error.contains(&part) && error.len() < 1024, "{error}");
}
