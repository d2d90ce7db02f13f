//! The gateway in front of servers that are honest, swapped, unsealed, hostile or dead, asked by the debuggers that it is for.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod floods;
#[path = "../program/mod.rs"]
mod program;
mod registries;
mod scene;
mod upstream;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use program::symseal;
use scene::{Gateway, PAGE, Scene};
use upstream::{Does, Upstream};

/// A layout without the files of the bundle: what proves them, and nothing to give.
fn without_files(scene: &Scene) -> String {
    let bare = scene.at("bare");
    if !Path::new(&bare).exists() {
        let copied = Command::new("cp").args(["-r", &scene.at("layout"), &bare]).status().unwrap();
        assert!(copied.success());
        for file in [&scene.debug, &scene.stripped] {
            let digest = symseal_bundle::Digest::of(&std::fs::read(file).unwrap());
            std::fs::remove_file(Path::new(&bare).join("blobs/sha256").join(digest.hex())).unwrap();
        }
    }
    bare
}

#[test]
fn gdb_names_functions_through_the_gateway_whatever_the_upstream_is() {
    let Some(scene) = Scene::new() else { return };
    let plain = Upstream::start();
    plain.does(&scene.debuginfo_path(), Does::Gives(std::fs::read(&scene.debug).unwrap()));
    let (ours, registry, bare) = (scene.url(), format!("oci://{}", scene.reference("team/app")), without_files(&scene));
    let tagged = format!("{registry}:1.0");
    let ways: [(&str, &[&str], &[&str]); 4] = [
        ("a server of ours", &[&ours], &[]),
        ("all tags of a repository", &[&registry], &[]),
        ("one tag", &[&tagged], &[]),
        ("a bundle here, and bytes of another debuginfod", &[&plain.url], &["--bundle", &bare]),
    ];
    for (at, (what, upstreams, more)) in ways.into_iter().enumerate() {
        let gateway = Gateway::start(&scene, &format!("state-{at}"), upstreams, more);
        let Some(text) = scene.gdb(&gateway.url, &format!("cache-{at}")) else { return };
        assert!(text.contains("app.c") && text.contains("a_function_with_a_long_name_17"), "{what}: {text}");
        let got = gateway.get(&scene.debuginfo_path(), &[]);
        assert!(got.status == 200 && got.body == std::fs::read(&scene.debug).unwrap(), "{what}: {}", got.head);
        assert!(
            got.head.contains("x-symseal-bundle: sha256:") && got.head.contains("x-symseal-seal: dsse:"),
            "{}",
            got.head
        );
        assert_eq!(gateway.status()["refused"], serde_json::json!([]), "{what}");
    }
    assert_eq!(plain.asked(), 1, "a checked file is not asked for again");
}

#[test]
fn lldb_names_functions_from_the_server_and_through_the_gateway_and_not_from_a_swapped_file() {
    let Some(scene) = Scene::new() else { return };
    let Some(text) = scene.lldb(&scene.url(), "direct") else { return };
    assert!(text.contains("app.c") && text.contains("a_function_with_a_long_name_17"), "{text}");
    let gateway = Gateway::start(&scene, "state", &[&scene.url()], &[]);
    let text = scene.lldb(&gateway.url, "verified").unwrap();
    assert!(text.contains("app.c"), "{text}");
    drop(gateway);

    let length = std::fs::metadata(&scene.debug).unwrap().len() as usize;
    scene.swap(&scene.debug, length - 100);
    let gateway = Gateway::start(&scene, "another-state", &[&scene.url()], &[]);
    let text = scene.lldb(&gateway.url, "refused").unwrap();
    assert!(!text.contains("app.c") && !gateway.status()["refused"].as_array().unwrap().is_empty(), "{text}");
}

#[test]
fn a_swapped_debug_file_reaches_no_debugger_and_the_status_page_says_why() {
    let Some(scene) = Scene::new() else { return };
    let length = std::fs::metadata(&scene.debug).unwrap().len() as usize;
    scene.swap(&scene.debug, length - 100);
    let gateway = Gateway::start(&scene, "state", &[&scene.url()], &[]);
    // The server itself gives the swapped file to everybody.
    let direct =
        Command::new("curl").args(["-sf", &format!("{}{}", scene.url(), scene.debuginfo_path())]).output().unwrap();
    assert!(direct.status.success() && direct.stdout.len() == length);
    let Some(text) = scene.gdb(&gateway.url, "cache") else { return };
    assert!(!text.contains("app.c"), "{text}");

    gateway.get(&scene.debuginfo_path(), &[]).is_refused("wrong-bytes");
    let refused = gateway.refused("wrong-bytes");
    assert_eq!(refused["asked"], scene.debuginfo_path());
    assert!(refused["upstream"].as_str().unwrap().contains(&scene.server.address), "{refused}");
    let sealed = symseal_bundle::Digest::of(&std::fs::read(&scene.debug).unwrap()).to_string();
    assert!(refused["expected"].as_str().unwrap().contains(&sealed), "{refused}");
    assert_eq!(refused["found"].as_str().unwrap().len(), 64, "{refused}");
    let page = gateway.get("/", &[]);
    let page_text = String::from_utf8(page.body).unwrap();
    assert!(page_text.contains("wrong-bytes") && page_text.contains(&scene.build_id), "{page_text}");
    assert!(page.head.contains("default-src 'none'"), "{}", page.head);
    // What was not swapped is given.
    let executable = gateway.get(&format!("/buildid/{}/executable", scene.build_id), &[]);
    assert!(executable.body == std::fs::read(&scene.stripped).unwrap());
}

#[test]
fn a_wrong_page_of_a_slow_file_breaks_the_body_off_before_it() {
    let Some(scene) = Scene::new() else { return };
    let bytes = std::fs::read(&scene.debug).unwrap();
    let mut wrong = bytes.clone();
    wrong[2 * PAGE + 5] ^= 1;
    let slow =
        |bytes: &[u8]| Does::Pauses(bytes[..2 * PAGE].to_vec(), Duration::from_secs(4), bytes[2 * PAGE..].to_vec());
    let upstream = Upstream::start();
    upstream.does(&scene.debuginfo_path(), slow(&wrong));
    let bare = without_files(&scene);
    let gateway = Gateway::start(&scene, "state", &[&upstream.url], &["--bundle", &bare]);
    let got = gateway.get(&scene.debuginfo_path(), &[]);
    assert_eq!((got.status, got.exit), (200, 56), "the connection is reset before the end");
    assert!(got.body.len() < bytes.len() && got.body == bytes[..got.body.len()], "{} bytes", got.body.len());
    assert!(got.body.len() >= PAGE, "{} bytes", got.body.len());
    assert!(gateway.refused("wrong-bytes")["expected"].as_str().unwrap().starts_with("page 2 of sha256:"));

    let left = scene.gdb(&gateway.url, "cache-slow").expect("gdb was there");
    assert!(!left.contains("app.c"), "{left}");

    // Where another upstream has the right bytes, it goes on there behind the last good page.
    let good = Upstream::start();
    good.does(&scene.debuginfo_path(), Does::Gives(bytes.clone()));
    let both = Gateway::start(&scene, "state-both", &[&upstream.url, &good.url], &["--bundle", &bare]);
    let got = both.get(&scene.debuginfo_path(), &[]);
    assert!(got.exit == 0 && got.body == bytes, "{}", got.head);
    assert_eq!(both.refused("wrong-bytes")["upstream"], upstream.url.as_str());
}

#[test]
fn what_no_trusted_key_sealed_is_refused_by_its_reason_and_a_revocation_holds_at_once() {
    let Some(scene) = Scene::new() else { return };
    let inputs = [scene.stripped.display().to_string(), scene.debug.display().to_string()];
    let empty = program::RunningServer::start(&scene.root.path().join("empty"));
    let gateway = |state: &str, server: &program::RunningServer| {
        Gateway::start(&scene, state, &[&format!("http://{}", server.address)], &[])
    };
    let open = gateway("state-empty", &empty);
    open.get(&scene.debuginfo_path(), &[]).is_refused("not-covered");
    assert_eq!(open.status()["missed"][0]["code"], "not-covered");

    scene.build("unsealed", &inputs, &[]);
    symseal(["bundle", "push", &scene.at("unsealed"), &format!("{}/a/b:1", empty.address)]).ok();
    open.refuses_until(&scene.debuginfo_path(), "unsealed");
    assert_eq!(open.refused("unsealed")["found"], "none");

    // A seal by a key that nobody trusts here; it comes after the bundle.
    symseal(["key", "generate", "--output", &scene.at("strange")]).ok();
    scene.seal("unsealed", "strange").ok();
    symseal(["bundle", "push", &scene.at("unsealed"), &format!("{}/a/b:1", empty.address)]).ok();
    open.refuses_until(&scene.debuginfo_path(), "seal-refused");
    assert!(open.refused("seal-refused")["expected"].as_str().unwrap().starts_with("trust.key: "));

    // A key that is revoked while the gateway runs, with the file in its cache.
    let running = gateway("state", &scene.server);
    assert_eq!(running.get(&scene.debuginfo_path(), &[]).status, 200);
    scene.revoke();
    std::thread::sleep(Duration::from_millis(1100));
    running.get(&scene.debuginfo_path(), &[]).is_refused("seal-refused");
    assert!(running.refused("seal-refused")["expected"].as_str().unwrap().starts_with("trust.revocation: "));
    // A trust directory that cannot be used trusts nobody.
    std::fs::write(Path::new(&scene.at("trust")).join("root.json"), "{}").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    running.get(&scene.debuginfo_path(), &[]).is_refused("seal-refused");
    assert!(running.status()["trust"]["problem"].as_str().is_some());
}

#[test]
fn hostile_upstreams_end_in_a_refusal_and_never_in_a_file() {
    let Some(scene) = Scene::new() else { return };
    let bytes = std::fs::read(&scene.debug).unwrap();
    let (bare, elsewhere) = (without_files(&scene), Upstream::start());
    elsewhere.does("/x", Does::Gives(bytes.clone()));
    let longer = [bytes.clone(), vec![7; 100]].concat();
    let tries = [
        Does::Gives(bytes[..bytes.len() - 1].to_vec()),
        Does::Gives(longer.clone()),
        Does::Announces(bytes.len(), vec![0; bytes.len()]),
        Does::NeverEnds,
        Does::Encodes(bytes.clone()),
        Does::Redirects(format!("{}/x", elsewhere.url)),
        Does::Redirects("file:///etc/passwd".to_owned()),
        Does::Redirects("/login".to_owned()),
    ];
    let began = Instant::now();
    for (at, does) in tries.into_iter().enumerate() {
        let upstream = Upstream::start();
        upstream.does(&scene.debuginfo_path(), does);
        upstream.does("/login", Does::GivesWith("Content-Type: text/html\r\n".to_owned(), b"<html>".to_vec()));
        let gateway = Gateway::start(&scene, &format!("state-{at}"), &[&upstream.url], &["--bundle", &bare]);
        let got = gateway.get(&scene.debuginfo_path(), &[]);
        // One that leads elsewhere, packs what nobody asked it to pack, or has less than the file, has said nothing wrong of it.
        match at {
            0 | 4.. => assert_eq!(got.status, 502, "{at}: {}", got.head),
            _ => got.is_refused("wrong-bytes"),
        }
        assert_eq!(elsewhere.asked(), 0, "it was led elsewhere");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// elfutils' client keeps a refusal for ten minutes as "there is no such file".
#[test]
fn an_answer_that_is_right_as_far_as_it_goes_is_asked_for_again_and_is_no_refusal() {
    let Some(scene) = Scene::new() else { return };
    let bytes = std::fs::read(&scene.debug).unwrap();
    let bare = without_files(&scene);
    let range = format!("206 Partial Content\r\nContent-Range: bytes 0-9/{}", bytes.len());
    let page = b"<html>log in</html>".to_vec();
    let short = [
        ("it breaks off", Does::Announces(bytes.len(), bytes[..PAGE + 7].to_vec())),
        ("its end is the connection's", Does::EndsWithIt(bytes[..PAGE + 7].to_vec())),
        ("its end is the connection's, at a page's end", Does::EndsWithIt(bytes[..PAGE].to_vec())),
        ("nothing", Does::Gives(Vec::new())),
        ("nothing, without a length", Does::EndsWithIt(Vec::new())),
        ("a part that nobody asked for", Does::Says(range.leak(), "0123456789".to_owned())),
        ("an error", Does::Says("500 Internal Server Error", String::new())),
        ("a page", Does::GivesWith("Content-Type: Text/HTML; charset=utf-8\r\n".to_owned(), page)),
    ];
    for (at, (case, does)) in short.into_iter().enumerate() {
        let upstream = Upstream::start();
        upstream.does(&scene.debuginfo_path(), does);
        let gateway = Gateway::start(&scene, &format!("state-{at}"), &[&upstream.url], &["--bundle", &bare]);
        let got = gateway.get(&scene.debuginfo_path(), &[]);
        assert_eq!(got.status, 502, "{case}: {}", got.head);
        let elfutils = gateway.get(&scene.debuginfo_path(), &["--user-agent", "elfutils/0.188"]);
        assert_eq!((elfutils.status, elfutils.exit), (0, 56), "{case}");
        // Who looks at the page sees which upstream it is, until it gives a file.
        let problem = |gateway: &Gateway| gateway.status()["upstreams"][0]["problem"].as_str().map(str::to_owned);
        assert!(problem(&gateway).is_some_and(|told| told.contains("(2 times, ")), "{case}: {:?}", problem(&gateway));
        upstream.does(&scene.debuginfo_path(), Does::Gives(bytes.clone()));
        assert_eq!(gateway.get(&scene.debuginfo_path(), &[]).status, 200, "{case}");
        assert_eq!(problem(&gateway), None, "{case}");
    }
}

#[test]
fn a_signature_of_the_distribution_goes_with_the_sealed_bytes_that_it_came_with() {
    let Some(scene) = Scene::new() else { return };
    let (bytes, bare) = (std::fs::read(&scene.debug).unwrap(), without_files(&scene));
    let signature = format!("030204{}", "5af0".repeat(260));
    let header = |value: &str| format!("X-DEBUGINFOD-IMASIGNATURE: {value}\r\n");
    let shown = |head: &str| {
        let named = head.lines().find_map(|line| line.strip_prefix("x-debuginfod-imasignature: "));
        named.map(|value| value.trim().to_owned())
    };
    let (plain, upstream) = (Upstream::start(), Upstream::start());
    plain.does(&scene.debuginfo_path(), Does::Gives(bytes.clone()));
    upstream.does(&scene.debuginfo_path(), Does::GivesWith(header(&signature), bytes.clone()));
    let gateway = Gateway::start(&scene, "state", &[&upstream.url], &["--bundle", &bare]);
    for when in ["as it comes", "out of the cache"] {
        let got = gateway.get(&scene.debuginfo_path(), &[]);
        assert!(got.status == 200 && got.body == bytes, "{when}: {}", got.head);
        assert_eq!(shown(&got.head).as_ref(), Some(&signature), "{when}");
    }
    let section = gateway.get(&format!("/buildid/{}/section/.debug_line", scene.build_id), &[]);
    assert_eq!((section.status, shown(&section.head)), (200, None), "it is the whole file's");
    // Never that of other bytes: the next server gives the file, and says nothing of a signature. And only what can be one.
    let (wrong, odd) = (Upstream::start(), Upstream::start());
    let mut changed = bytes.clone();
    changed[7] ^= 1;
    wrong.does(&scene.debuginfo_path(), Does::GivesWith(header(&signature), changed));
    odd.does(&scene.debuginfo_path(), Does::GivesWith(header("no hex"), bytes.clone()));
    for (at, upstreams) in [&[wrong.url.as_str(), plain.url.as_str()][..], &[&odd.url]].into_iter().enumerate() {
        let gateway = Gateway::start(&scene, &format!("state-{at}"), upstreams, &["--bundle", &bare]);
        let got = gateway.get(&scene.debuginfo_path(), &[]);
        assert!(got.status == 200 && got.body == bytes, "{}", got.head);
        assert_eq!(shown(&got.head), None);
    }
}

#[test]
fn a_dead_upstream_is_no_absence_for_debuginfod_clients() {
    let Some(scene) = Scene::new() else { return };
    let Some(find) = program::tool("debuginfod-find") else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dead = format!("http://127.0.0.1:{port}");
    let gateway = Gateway::start(&scene, "state", &[&dead], &[]);
    let elfutils = ["--user-agent", "elfutils/0.188,Linux/x86_64,debian/12"];
    let got = gateway.get(&scene.debuginfo_path(), &elfutils);
    assert_eq!((got.status, got.exit), (0, 56), "the connection is reset, which the client does not keep");
    assert_eq!(gateway.get(&scene.debuginfo_path(), &[]).status, 502);
    let ask = |url: &str| {
        let mut command = Command::new(&find);
        command.env("DEBUGINFOD_URLS", url).env("DEBUGINFOD_CACHE_PATH", scene.at("cache"));
        command.args(["debuginfo", &scene.build_id]).output().unwrap()
    };
    assert!(!ask(&gateway.url).status.success());
    // The client has kept no absence: with an upstream that lives it finds the file.
    let living = Gateway::start(&scene, "state-living", &[&dead, &scene.url()], &[]);
    let found = ask(&living.url);
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    assert!(
        std::fs::read(String::from_utf8(found.stdout).unwrap().trim()).unwrap() == std::fs::read(&scene.debug).unwrap()
    );
    let problems: Vec<_> = living.status()["upstreams"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["problem"].is_string())
        .cloned()
        .collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn sections_sources_ranges_and_conditions_come_from_checked_files() {
    let Some(scene) = Scene::new() else { return };
    let gateway = Gateway::start(&scene, "state", &[&scene.url()], &[]);
    let objcopy = program::tool("objcopy").unwrap();
    let section = scene.at("section");
    let dumped = Command::new(objcopy)
        .args(["-O", "binary", "--set-section-flags", ".debug_line=alloc", "--only-section=.debug_line"])
        .arg(&scene.debug)
        .arg(&section)
        .status();
    assert!(dumped.unwrap().success());
    let got = gateway.get(&format!("/buildid/{}/section/.debug_line", scene.build_id), &[]);
    assert!(got.status == 200 && got.body == std::fs::read(&section).unwrap(), "{}", got.head);
    assert!(!got.head.contains("x-debuginfod-sha256"), "it is that of whole files: {}", got.head);
    gateway.get(&format!("/buildid/{}/section/.nothing", scene.build_id), &[]).is_refused("no-such-section");

    let source = scene.at("inputs/app.c");
    let got = gateway.get(&format!("/buildid/{}/source{source}", scene.build_id), &[]);
    assert!(got.status == 200 && got.body == std::fs::read(&source).unwrap(), "{}", got.head);
    gateway.get(&format!("/buildid/{}/source/etc/passwd", scene.build_id), &[]).is_refused("no-such-source");
    gateway.get(&format!("/buildid/{}/source/../../etc/passwd", scene.build_id), &[]).is_refused("no-such-source");

    let bytes = std::fs::read(&scene.debug).unwrap();
    // The first answer may be the whole, while it comes in.
    let part = gateway.get(&scene.debuginfo_path(), &["--range", "70000-70009"]);
    let is_part = part.status == 206 && part.body == bytes[70000..70010];
    assert!(is_part || (part.status == 200 && part.body == bytes), "{}", part.head);
    let part = gateway.get(&scene.debuginfo_path(), &["--range", "70000-70009"]);
    assert!(part.status == 206 && part.body == bytes[70000..70010], "{}", part.head);
    let tag = format!("If-None-Match: \"{}\"", symseal_bundle::Digest::of(&bytes));
    assert_eq!(gateway.get(&scene.debuginfo_path(), &["--header", &tag]).status, 304);
    let head = gateway.get(&scene.debuginfo_path(), &["--head"]);
    assert!(head.status == 200 && head.head.contains(&format!("content-length: {}\r\n", bytes.len())), "{}", head.head);
    assert_eq!(gateway.get(&scene.debuginfo_path(), &["--header", "X-DEBUGINFOD-MAXSIZE: 100"]).status, 406);
    assert_eq!(gateway.get(&scene.debuginfo_path(), &["--request", "POST"]).status, 405);
    assert_eq!(gateway.get("/buildid/../../etc/passwd", &[]).status, 404);
    assert_eq!(gateway.get("/", &["--header", "Host: evil.example"]).status, 421);
    assert_eq!(gateway.get("/symbols/pingme.txt", &[]).status, 200);
}

#[test]
fn windbg_gets_a_sealed_program_by_its_path() {
    let Some(scene) = Scene::new() else { return };
    let Some(compiler) = program::tool("x86_64-w64-mingw32-gcc") else { return };
    let folder = scene.root.path().join("pe");
    std::fs::create_dir(&folder).unwrap();
    let (source, app) = (folder.join("app.c"), folder.join("app.exe"));
    std::fs::write(&source, "int main(void) { return 7; }\n").unwrap();
    let built = Command::new(compiler).args(["-g", "-Wl,--build-id", "-o"]).arg(&app).arg(&source).status();
    assert!(built.unwrap().success());
    scene.build("windows", &[app.display().to_string()], &[]);
    scene.seal("windows", "keys").ok();
    symseal(["bundle", "push", &scene.at("windows"), &scene.reference("team/win:1.0")]).ok();
    let index: serde_json::Value = serde_json::from_slice(
        &symseal_bundle::Bundle::open_dir(scene.at("windows")).unwrap().index().to_canonical_json().unwrap(),
    )
    .unwrap();
    let module = index["windows"].as_object().unwrap().values().next().unwrap();
    let code_id = module["code_id"].as_str().unwrap();
    let gateway = Gateway::start(&scene, "state", &[&scene.url()], &[]);
    // As symsrv.dll asks: the compressed form first, with its own agent; then the file.
    let agent = ["--user-agent", "Microsoft-Symbol-Server/10.0.22621.1"];
    assert_eq!(gateway.get(&format!("/symbols/app.exe/{code_id}/app.ex_"), &agent).status, 404);
    for name in ["app.exe", "APP.EXE"] {
        let got = gateway.get(&format!("/symbols/{name}/{}/{name}", code_id.to_uppercase()), &agent);
        assert!(got.status == 200 && got.body == std::fs::read(&app).unwrap(), "{}", got.head);
    }
    gateway.get(&format!("/symbols/other.exe/{code_id}/other.exe"), &agent).is_refused("not-covered");
}

#[test]
fn a_gateway_listens_on_loopback_alone_and_wants_sound_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let ran = |arguments: &[&str]| {
        symseal(["gateway", "--state", &at("state"), "--trust", &at("trust")].iter().chain(arguments))
    };
    ran(&["--upstream", "http://127.0.0.1:1", "--listen", "0.0.0.0:0"]).refused(2, &["loopback"]);
    symseal(["key", "generate", "--output", &at("keys")]).ok();
    let key = at("keys/artifact.pub.pem");
    symseal(["trust", "init", "--trust", &at("trust"), "--key", &key, "--name", "app", "--log", &at("log")]).ok();
    for url in ["ftp://h/", "h:1", "oci://nohost", "oci://h.example/UPPER", "http://user:secret@h/"] {
        ran(&["--upstream", url, "--listen", "127.0.0.1:0"]).refused(2, &["--upstream"]);
    }
    std::fs::remove_dir_all(folder.path().join("trust")).unwrap();
    ran(&["--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"]).refused(2, &["trust"]);
    ran(&[]).refused(2, &["--bundle"]);
}
