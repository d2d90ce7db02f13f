//! Sentry's unified layout, as symsorter writes it, with its compressions.

use serde_json::json;

use crate::program::{RunningServer, compile_c};
use crate::scene::{codeview, get, import, made, post, put, windows_program};

const ID: &str = "abcdef0102030405060708090a0b0c0d0e0f1011";

#[test]
fn files_of_the_unified_layout_are_unpacked_and_found_by_every_client() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = "int twice(int x) { return 2 * x; }\nint main(void) { return twice(3) - 6; }\n";
    let build_id = format!("-Wl,--build-id=0x{ID}");
    let Some(whole) = compile_c(folder.path(), "app", text, &["-g", "-O0", &build_id]) else { return };
    let whole = whole.to_str().unwrap();
    if !made("objcopy", folder.path(), &["--only-keep-debug", whole, "app.debug"])
        || !made("objcopy", folder.path(), &["--strip-all", whole, "app.stripped"])
        || !made("zstd", folder.path(), &["-q", "app.debug", "-o", "debug.zst"])
        || !made("gzip", folder.path(), &["-k", "app.stripped"])
    {
        return;
    }
    let read = |name: &str| std::fs::read(at(name)).unwrap();
    let (debug, stripped) = (read("app.debug"), read("app.stripped"));
    let store = at("store");
    let module = format!("{}/{}", &ID[..2], &ID[2..]);
    put(&store, &format!("{module}/debuginfo"), &read("debug.zst"));
    put(&store, &format!("{module}/executable"), &read("app.stripped.gz"));
    put(&store, &format!("{module}/meta"), br#"{"name":"/build/libapp.so","arch":"x86_64","file_format":"elf"}"#);
    put(&store, &format!("{module}/refs/release"), b"");
    put(&store, &format!("{module}/sourcebundle"), b"SYSB");
    put(&store, "bundles/release", br#"{"name":"release"}"#);
    put(&store, &format!("00/{}/debuginfo", &ID[2..]), &debug);
    let windows = windows_program(folder.path(), "win", "int main(void) { return 0; }\n");
    let mut count = 2;
    if let Some((exe, pdb)) = &windows {
        let id = codeview(exe).to_lowercase();
        put(&store, &format!("{}/{}/executable", &id[..2], &id[2..]), exe);
        put(&store, &format!("{}/{}/debuginfo", &id[..2], &id[2..]), pdb);
        count += 2;
    }
    let server = RunningServer::start(&at("data"));
    let to = format!("http://{}", server.address);
    let report = import(&store, &at("journal"), &["--to", &to]);
    assert_eq!(report.summary["layout"], "unified");
    assert_eq!(
        (report.summary["imported"].as_u64(), report.summary["unpacked"].as_u64()),
        (Some(count), Some(2)),
        "{:?}",
        report.files
    );
    assert!(report.outcome(&format!("00/{}/debuginfo", &ID[2..])).1.contains(ID));
    assert!(report.outcome(&format!("{module}/sourcebundle")).1.contains("sources"));
    assert_eq!(report.files[&format!("{module}/debuginfo")]["name"], "libapp.so");
    assert!(get(&server, &format!("/buildid/{ID}/debuginfo")).1 == debug);
    assert!(get(&server, &format!("/buildid/{ID}/executable")).1 == stripped);
    assert!(get(&server, &format!("/symbols/_.debug/elf-buildid-sym-{ID}/_.debug")).1 == debug);
    if let Some((exe, pdb)) = windows {
        // The program names its PDB.
        let found = get(&server, &format!("/symbols/win.pdb/{}/win.pdb", codeview(&exe)));
        assert!(found.1 == pdb, "{}", found.0);
    }
    // Debug files without a bundle name their modules too: the address is llvm-symbolizer's business, so the function's own start will do.
    let listed = std::process::Command::new("nm").arg(whole).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let twice = listed.lines().find_map(|line| line.strip_suffix(" T twice")).unwrap();
    let address = format!("0x{}", twice.trim_start_matches('0'));
    let resolved =
        post(&server, "/api/v1/resolve", &json!({ "platform": "linux", "debug_id": ID, "addresses": [address] }));
    let frame = &resolved["frames"][0]["frames"][0];
    assert_eq!((frame["function"].as_str(), frame["line"].as_u64()), (Some("twice"), Some(1)), "{resolved}");
    assert_eq!(resolved["frames"][0]["proof"], "none");
}
