//! Stores of SymStore: one tier and two, packed files, pointers.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::program::{Ran, RunningServer, command, run};
use crate::scene::{code_id, codeview, get, import, made, put, windows_program};

const TEXT: &str =
    "int twice(int x) { return 2 * x; }\nint main(void) { return twice(3) - 6; }\nvoid __main(void) {}\n";

/// Packs a file as SymStore does.
fn packed(folder: &Path, name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    std::fs::write(folder.join(name), bytes).unwrap();
    made("gcab", folder, &["-c", "-z", "packed.cab", name]).then(|| std::fs::read(folder.join("packed.cab")).unwrap())
}

/// Names of Windows' products have spaces, and a query that is written as a form has a plus for one.
#[test]
fn names_with_a_space_a_plus_and_a_percent_sign_are_served_under_their_own_keys() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let Some((exe, pdb)) = windows_program(folder.path(), "App", TEXT) else { return };
    let keys = [("My App+50%.pdb", codeview(&exe), &pdb), ("My App+50%.exe", code_id(&exe), &exe)];
    let store = at("store");
    for (name, key, bytes) in &keys {
        put(&store, &format!("{name}/{key}/{name}"), bytes);
    }
    let escaped = |path: String| path.replace('%', "%25").replace(' ', "%20");
    let served = |server: &RunningServer, (name, key, bytes): &(&str, String, &Vec<u8>)| {
        let (status, found) = get(server, &escaped(format!("/symbols/{name}/{key}/{name}")));
        assert!(status == 200 && found == **bytes, "{name}: {status}, {} bytes", found.len());
    };
    let server = RunningServer::start(&at("data"));
    let to = format!("http://{}", server.address);
    for expected in ["imported", "already-there"] {
        let report = import(&store, &at(expected), &["--to", &to]);
        for key in &keys {
            let (name, id, _) = key;
            assert_eq!(report.outcome(&format!("{name}/{id}/{name}")).0, expected);
            served(&server, key);
        }
    }
    // By itself, to a server that has none of them.
    let server = RunningServer::start(&at("other"));
    let to = format!("http://{}", server.address);
    for key in &keys {
        let file = store.join(key.0).join(&key.1).join(key.0);
        let ran = run("symseal", ["upload", "--json", "--to", &to, file.to_str().unwrap()]);
        assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(&format!("\"name\":\"{}\"", key.0)), "{}", ran.stdout);
        served(&server, key);
    }
}

#[test]
fn a_two_tier_store_is_served_under_its_own_keys_and_wrong_files_stay_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let Some((exe, pdb)) = windows_program(folder.path(), "App", TEXT) else { return };
    let Some((other_exe, other_pdb)) = windows_program(folder.path(), "other", "int main(void) { return 1; }\n") else {
        return;
    };
    let Some(cabinet) = packed(folder.path(), "App.pdb", &pdb) else { return };
    // A PE file without a CodeView record: its time stamp and size are all that it is known by.
    std::fs::write(at("plain.c"), TEXT).unwrap();
    let plain = ["-s", "-nostdlib", "-e", "main", "-o", "plain.exe", "plain.c"];
    let has_mingw = made("x86_64-w64-mingw32-gcc", folder.path(), &plain);
    let (id, image) = (codeview(&exe), code_id(&exe));
    let (other_id, other_image) = (codeview(&other_exe), code_id(&other_exe));
    let store = at("store");
    put(&store, "index2.txt", b"");
    put(&store, "000Admin/history.txt", b"0000000001,add,file,01/01/2026");
    put(&store, "pingme.txt", b"");
    put(&store, &format!("Ap/App.pdb/{id}/App.pd_"), &cabinet);
    put(&store, &format!("Ap/App.pdb/{id}/refs.ptr"), b"0000000001");
    put(&store, &format!("ap/App.exe/{image}/App.exe"), &exe);
    put(&store, &format!("ot/other.pdb/{other_id}/file.ptr"), br"PATH:\\builds\Drops\Release 1.0\other.pdb");
    put(&store, &format!("ot/other.exe/{other_image}/file.ptr"), br"PATH:\\elsewhere\x\other.exe");
    put(&store, &format!("ot/other.pdb/{id}/other.pdb"), &other_pdb);
    put(&store, "ap/App.exe/5F3A1B2C1f000/App.exe", b"MZ and no more");
    put(&store, &format!("ap/App.pdb/{other_id}/App.pd_"), &cabinet[..cabinet.len() / 2]);
    // Pointers do not mind capitals, as Windows does not.
    put(&at("drops"), "release 1.0/Other.PDB", &other_pdb);
    std::os::unix::fs::symlink("/etc/passwd", store.join("ap/passwd")).unwrap();
    let mut expected = vec![
        (format!("App.pdb/{id}/App.pdb"), pdb.clone()),
        (format!("App.exe/{image}/App.exe"), exe.clone()),
        (format!("other.pdb/{other_id}/other.pdb"), other_pdb.clone()),
    ];
    if has_mingw {
        let bytes = std::fs::read(at("plain.exe")).unwrap();
        let key = code_id(&bytes);
        put(&store, &format!("pl/plain.exe/{key}/plain.ex_"), &packed(folder.path(), "plain.exe", &bytes).unwrap());
        expected.push((format!("plain.exe/{key}/plain.exe"), bytes));
    }
    let pointer = format!(r"\\BUILDS\drops={}", at("drops").display());
    let journal = at("journal");

    let tried = import(&store, &journal, &["--dry-run", "--pointer", &pointer]);
    assert_eq!(tried.summary["layout"], "symstore2");
    assert_eq!(
        (tried.summary["would_import"].as_u64().unwrap(), tried.summary["refused"].as_u64().unwrap()),
        (expected.len() as u64, 5)
    );
    assert!(!journal.exists());

    let server = RunningServer::start(&at("data"));
    let to = format!("http://{}", server.address);
    let first = import(&store, &journal, &["--to", &to, "--pointer", &pointer, "--repository", "loose/old"]);
    assert_eq!(
        (first.status, first.summary["imported"].as_u64().unwrap()),
        (1, expected.len() as u64),
        "{}",
        first.summary
    );
    assert_eq!(first.summary["administration"], 4);
    for (path, reasons) in [
        (format!("ot/other.pdb/{id}/other.pdb"), vec![id.to_lowercase(), other_id[..32].to_owned()]),
        (format!("ot/other.exe/{other_image}/file.ptr"), vec![r"\\elsewhere\x\other.exe".into(), "--pointer".into()]),
        ("ap/App.exe/5F3A1B2C1f000/App.exe".into(), vec![]),
        (format!("ap/App.pdb/{other_id}/App.pd_"), vec!["App.pd_".into(), "the end".into()]),
        ("ap/passwd".into(), vec!["a link that leads out".into()]),
    ] {
        let (outcome, reason) = first.outcome(&path);
        assert_eq!(outcome, "refused", "{path}");
        assert!(!reason.is_empty() && reasons.iter().all(|part| reason.contains(part)), "{path}: {reason}");
    }
    for (path, bytes) in &expected {
        for path in [path.clone(), path.to_lowercase()] {
            let (status, found) = get(&server, &format!("/symbols/{path}"));
            assert!(status == 200 && found == *bytes, "{path}: {status}, {} bytes", found.len());
        }
        assert_eq!(get(&server, &format!("/s/loose/old/symbols/{path}")).0, 200);
        assert_eq!(get(&server, &format!("/s/loose/new/symbols/{path}")).0, 404);
    }
    // Another module's file is never answered under a wrong id.
    assert_eq!(get(&server, &format!("/symbols/other.pdb/{id}/other.pdb")).0, 404);
    let again = import(&store, &journal, &["--to", &to, "--pointer", &pointer, "--repository", "loose/old"]);
    assert_eq!(again.summary["already_there"].as_u64().unwrap(), expected.len() as u64, "{}", again.summary);
    assert_eq!(again.summary["imported"], 0);
    // The journal alone does not make a file be there.
    drop(server);
    let server = RunningServer::start(&at("new"));
    let to = format!("http://{}", server.address);
    let elsewhere = import(&store, &journal, &["--to", &to, "--pointer", &pointer, "--repository", "loose/old"]);
    assert_eq!(elsewhere.summary["imported"].as_u64().unwrap(), expected.len() as u64, "{}", elsewhere.summary);
}

#[test]
fn a_run_that_is_killed_is_run_again_and_nothing_is_lost_or_half_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let Some((exe, pdb)) = windows_program(folder.path(), "app", TEXT) else { return };
    let id = codeview(&exe);
    let store = at("store");
    let names: Vec<String> = (0..300).map(|number| format!("app{number}.pdb")).collect();
    for name in &names {
        put(&store, &format!("{name}/{id}/{name}"), &pdb);
    }
    let server = RunningServer::start(&at("data"));
    let to = format!("http://{}", server.address);
    let journal = at("journal");
    let mut killed = 0;
    for pause in [60, 120, 250] {
        let store = store.to_str().unwrap();
        let arguments = ["import", store, "--to", &to, "--jobs", "1", "--journal", journal.to_str().unwrap()];
        let mut running = command("symseal").args(arguments).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        killed += u32::from(running.try_wait().unwrap().is_none());
        let _ = running.kill();
        running.wait().unwrap();
    }
    assert!(killed > 0, "every run came to its end before it was killed");
    let last = import(&store, &journal, &["--to", &to]);
    let sum = |key: &str| last.summary[key].as_u64().unwrap();
    assert_eq!((last.status, sum("imported") + sum("already_there")), (0, 300), "{}", last.summary);
    for name in &names {
        let (status, bytes) = get(&server, &format!("/symbols/{name}/{id}/{name}"));
        assert!(status == 200 && bytes == pdb, "{name}");
    }
    let again = import(&store, &journal, &["--to", &to]);
    assert_eq!(again.summary["already_there"], 300);
}

#[test]
fn a_store_comes_into_the_data_directory_of_a_server_that_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let Some((exe, pdb)) = windows_program(folder.path(), "app", TEXT) else { return };
    let id = codeview(&exe);
    let store = at("store");
    put(&store, &format!("app.pdb/{id}/app.pdb"), &pdb);
    put(&store, &format!("app.exe/{}/app.exe", code_id(&exe)), &exe);
    let data = at("data");
    let first = import(&store, &at("journal"), &["--data", data.to_str().unwrap()]);
    assert_eq!((first.status, first.summary["imported"].as_u64()), (0, Some(2)), "{}", first.summary);
    let server = RunningServer::start(&data);
    assert!(get(&server, &format!("/symbols/app.pdb/{id}/app.pdb")).1 == pdb);
    drop(server);
    // Also where callers need tokens: the import has one of its own each time, for as long as it runs.
    let (config, other) = (at("server.toml"), at("other"));
    std::fs::write(&config, format!("data = {:?}\n[access]\nmode = \"tokens\"\n", data)).unwrap();
    put(&other, &format!("app.pdb/{id}/app.pdb"), &pdb);
    put(&other, &format!("app.exe/{}/app.exe", code_id(&exe)), &exe);
    let config = config.to_str().unwrap();
    let again = import(&other, &at("other.journal"), &["--config", config, "--repository", "loose/other"]);
    assert_eq!((again.status, again.summary["imported"].as_u64()), (0, Some(2)), "{}", again.summary);
    let tokens = crate::program::run("symseal", ["token", "list", "--json", "--config", config]).ok().json();
    let [first, second] = tokens.as_array().unwrap().as_slice() else { panic!("{tokens}") };
    for token in [first, second] {
        assert_eq!(token["name"], "symseal import");
        assert!(token["revoked"].is_string() && token["expires"].is_string(), "{token}");
    }
    // A service's user has no directory of his own: the journal lies in that which is imported into, and holds.
    let homeless = |more: &[&str]| {
        let mut command = command("symseal");
        command.args(["import", other.to_str().unwrap(), "--json"]).args(more).env("XDG_DATA_HOME", "/dev/null");
        Ran::from(command.stdin(Stdio::null()).output().unwrap())
    };
    let into = ["--data", data.to_str().unwrap()];
    let ran = homeless(&into).ok();
    let summary: serde_json::Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(summary["summary"]["already_there"], 2, "{summary}");
    assert_eq!(std::fs::read_dir(data.join("import")).unwrap().count(), 1);
    let _running = RunningServer::start(&data);
    homeless(&["--to", &format!("http://{}", _running.address)]).refused(2, &["/dev/null", "--journal"]);
    // While a server uses the directory nobody else does.
    let arguments = ["import", store.to_str().unwrap(), "--data", data.to_str().unwrap()];
    crate::program::run("symseal", arguments).refused(2, &["data"]);
    crate::program::run("symseal", ["import", store.to_str().unwrap()]).refused(2, &["--to", "--data", "--dry-run"]);
    crate::program::run("symseal", ["import", folder.path().join("drops").to_str().unwrap(), "--dry-run"])
        .refused(2, &[]);
    crate::program::run("symseal", ["import", data.to_str().unwrap(), "--dry-run"])
        .refused(2, &["NAME/ID/FILE", "--layout"]);
}

/// A token that nobody revokes holds for a day.
#[test]
fn an_import_that_is_told_to_end_revokes_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let Some((exe, _)) = windows_program(folder.path(), "App", TEXT) else { return };
    let (store, data) = (at("store"), at("data"));
    // More than it comes through while somebody looks.
    for number in 0..4000_u32 {
        let mut bytes = exe.clone();
        bytes.extend(number.to_le_bytes());
        put(&store, &format!("App{number}.exe/{}/App{number}.exe", code_id(&exe)), &bytes);
    }
    let data_text = data.to_str().unwrap();
    let tokens = || run("symseal", ["token", "list", "--json", "--data", data_text]);
    for signal in ["-INT", "-TERM"] {
        let before = tokens().stdout.matches("\"revoked\": null").count();
        assert_eq!(before, 0);
        let mut import = command("symseal");
        import.args(["import", store.to_str().unwrap(), "--json", "--data", data_text, "--jobs", "1"]);
        import.args(["--journal", at(signal).to_str().unwrap()]);
        let mut import = import.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(import.stdout.as_mut().unwrap()), &mut first).unwrap();
        assert!(tokens().stdout.contains("\"holds\": true"), "{}", tokens().stdout);
        let id = import.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
        let ended = import.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && said.contains("ended before its end"), "{:?} {said}", ended.status);
        let listed = tokens().ok().json();
        let of_imports = listed.as_array().unwrap();
        assert!(!of_imports.is_empty() && of_imports.iter().all(|token| token["revoked"].is_string()), "{listed}");
    }
}
