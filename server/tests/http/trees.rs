//! Directories and package pools that are served where they lie.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::programs::{has, output, publish, run};
use crate::support::{Running, http};
use reqwest::header::{CONTENT_RANGE, ETAG, IF_NONE_MATCH, RANGE};
use reqwest::{Client, StatusCode};
use symseal_bundle::Digest;
use symseal_server::Origins;

/// How long a scan may take here.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that looks at the tree once, as far as a test goes.
pub(crate) async fn looking_hourly(data: &Path, tree: &Path) -> Running {
    let hour = Origins { tree_interval: Duration::from_secs(3600), ..origins(&[tree]) };
    Running::start_with(data, &hour).await
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A program, its debug file and its stripped form, each with the same build-id.
pub(crate) struct Program {
    pub(crate) id: &'static str,
    pub(crate) whole: PathBuf,
    pub(crate) debug: PathBuf,
    pub(crate) stripped: PathBuf,
}

pub(crate) fn program(folder: &Path, id: &'static str) -> Program {
    let at = |suffix: &str| folder.join(format!("{id}{suffix}"));
    let (source, whole, debug, stripped) = (at(".c"), at(""), at(".debug"), at(".stripped"));
    std::fs::write(
        &source,
        format!("int f_{id}(int x) {{ return x + 1; }}\nint main(void) {{ return f_{id}(-1); }}\n"),
    )
    .unwrap();
    run("cc", &["-g", text(&source), "-o", text(&whole), &format!("-Wl,--build-id=0x{id}")]);
    run("objcopy", &["--only-keep-debug", text(&whole), text(&debug)]);
    run("objcopy", &["--strip-debug", "--strip-unneeded", text(&whole), text(&stripped)]);
    Program { id, whole, debug, stripped }
}

/// A folder, one in it where things are made, and one that is served.
pub(crate) fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [work, tree] = ["work", "tree"].map(|name| folder.path().join(name));
    std::fs::create_dir_all(&work).unwrap();
    std::fs::create_dir_all(&tree).unwrap();
    (folder, work, tree)
}

pub(crate) fn copy(from: &Path, to: PathBuf) -> PathBuf {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(from, &to).unwrap();
    to
}

#[tokio::test]
async fn a_directory_that_takes_the_place_of_another_is_read_and_one_that_is_gone_keeps_what_is_known() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let [first, second] = ["aaaa0011", "aaaa0012"].map(|id| program(root.path(), id));
    let at = |name: &str| root.path().join(name);
    copy(&first.whole, at("pool-1/app"));
    copy(&second.whole, at("pool-2/app"));
    symlink(at("pool-1"), at("current")).unwrap();
    copy(&first.whole, at("pool/app"));
    for (name, replace) in [
        // As mirrors do it: a link that leads elsewhere, or another directory of the same name.
        (
            "current",
            &(|| {
                symlink(at("pool-2"), at("next")).unwrap();
                std::fs::rename(at("next"), at("current")).unwrap();
            }) as &dyn Fn(),
        ),
        ("pool", &|| {
            std::fs::rename(at("pool"), at("pool.old")).unwrap();
            copy(&second.whole, at("pool/app"));
        }),
    ] {
        let interval = Duration::from_millis(100);
        let origins = Origins { trees: vec![at(name)], tree_interval: interval, ..Origins::default() };
        let server = Running::start_with(&at(&format!("data-{name}")), &origins).await;
        let status = async |program: &Program| {
            let url = server.url(&format!("/buildid/{}/executable", program.id));
            http().get(url).send().await.unwrap().status()
        };
        let becomes = async |program: &Program, expected: StatusCode| {
            let started = Instant::now();
            while status(program).await != expected {
                assert!(started.elapsed() < PATIENCE, "{name}: {} is not {expected}", program.id);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        becomes(&first, StatusCode::OK).await;
        replace();
        becomes(&second, StatusCode::OK).await;
        becomes(&first, StatusCode::NOT_FOUND).await;
        // Nothing there, as while a file system is mounted anew: what is known stays, and holds when it is back.
        std::fs::rename(at(name), at("away")).unwrap();
        tokio::time::sleep(interval * 5).await;
        assert_eq!(status(&second).await, StatusCode::OK, "{name}");
        std::fs::rename(at("away"), at(name)).unwrap();
        becomes(&second, StatusCode::OK).await;
        server.stop().await;
    }
}

#[tokio::test]
async fn a_bomb_in_an_archive_is_told_and_hides_nothing_behind_it() {
    if !has("cc") || !has("objcopy") || !has("zip") || !has("gzip") || !has("python3") {
        return;
    }
    let (folder, work, tree) = folders();
    let at = |name: &str| work.join(name);
    // It begins like a program, so that it is read.
    let [first, bomb, last] = ["aaaa0021", "aaaa0022", "aaaa0023"].map(|id| program(&work, id));
    std::fs::copy(&bomb.whole, at("bomb")).unwrap();
    std::fs::File::options().write(true).open(at("bomb")).unwrap().set_len(400 << 20).unwrap();
    run("gzip", &["-k", text(&at("bomb"))]);
    let (zip, tar, one_stream) = (tree.join("a.zip"), tree.join("b.tar"), tree.join("c.tar.gz"));
    run("zip", &["-q", "-j", text(&zip), text(&first.whole), text(&at("bomb")), text(&last.whole)]);
    let [third, fourth, fifth, sixth] = ["aaaa0024", "aaaa0025", "aaaa0026", "aaaa0027"].map(|id| program(&work, id));
    run("tar", &["-cf", text(&tar), "-C", text(&work), third.id, "bomb.gz", fourth.id]);
    run("tar", &["-czf", text(&one_stream), "-C", text(&work), fifth.id, "bomb", sixth.id]);
    // Packed by a method that is not read.
    let lzma = "import sys, zipfile; zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_LZMA).write(sys.argv[2], 'packed')";
    run("python3", &["-c", lzma, text(&tree.join("d.zip")), text(&bomb.whole)]);
    let server = Running::start_with(&folder.path().join("data"), &origins(&[&tree])).await;
    let http = http();
    for reached in [&first, &last, &third, &fourth, &fifth] {
        let path = format!("/buildid/{}/executable", reached.id);
        wait(&http, &server, &path, StatusCode::OK).await;
        assert!(get(&http, &server, &path).await.1 == std::fs::read(&reached.whole).unwrap(), "{path}");
    }
    for not_reached in [&bomb, &sixth] {
        let path = format!("/buildid/{}/executable", not_reached.id);
        assert_eq!(get(&http, &server, &path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    let metrics = String::from_utf8(get(&http, &server, "/metrics").await.1).unwrap();
    for line in ["bombs_total 2", "members_passed_over_total 1", "archives_broken_off_total 1"] {
        let line = format!("symseal_tree_{line}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

/// A tree with a file in every way: what it answers by path.
fn plant(work: &Path, tree: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut expected = BTreeMap::new();
    let mut expect = |path: String, file: &Path| drop(expected.insert(path, std::fs::read(file).unwrap()));
    // By itself, unstripped and as a debug file.
    let loose = program(work, "aaaa0001");
    copy(&loose.whole, tree.join("deep/er/loose"));
    expect(format!("/buildid/{}/debuginfo", loose.id), &loose.whole);
    expect(format!("/buildid/{}/executable", loose.id), &loose.whole);
    let apart = program(work, "aaaa0002");
    copy(&apart.debug, tree.join(".build-id/aa/aa0002.debug"));
    expect(format!("/buildid/{}/debuginfo", apart.id), &apart.debug);
    // A Debian package with both.
    let packed = program(work, "aaaa0003");
    let root = work.join("deb");
    copy(&packed.stripped, root.join("usr/bin/packed"));
    copy(&packed.debug, root.join("usr/lib/debug/.build-id/aa/aa0003.debug"));
    std::fs::create_dir_all(root.join("DEBIAN")).unwrap();
    let control = "Package: packed\nVersion: 1\nArchitecture: amd64\nMaintainer: a <a@example.org>\nDescription: a\n";
    std::fs::write(root.join("DEBIAN/control"), control).unwrap();
    std::fs::create_dir_all(tree.join("pool")).unwrap();
    run("dpkg-deb", &["--build", "--root-owner-group", text(&root), text(&tree.join("pool/packed.deb"))]);
    expect(format!("/buildid/{}/debuginfo", packed.id), &packed.debug);
    expect(format!("/buildid/{}/executable", packed.id), &packed.stripped);
    // Archives, and a file that was compressed by itself.
    for (id, archive, arguments) in
        [("aaaa0004", "a.tar.xz", "-cJf"), ("aaaa0005", "a.tar.gz", "-czf"), ("aaaa0006", "a.tar.zst", "--zstd -cf")]
    {
        let member = program(work, id);
        let mut all: Vec<&str> = arguments.split(' ').collect();
        let (to, folder, name) = (tree.join(archive), text(work), member.debug.file_name().unwrap().to_str().unwrap());
        all.extend([text(&to), "-C", folder, name]);
        run("tar", &all);
        expect(format!("/buildid/{id}/debuginfo"), &member.debug);
    }
    let module = program(work, "aaaa0007");
    run("xz", &["--keep", text(&module.debug)]);
    copy(&work.join("aaaa0007.debug.xz"), tree.join("module.ko.xz"));
    expect(format!("/buildid/{}/debuginfo", module.id), &module.debug);
    // Twice, and under a name that does not say so.
    let kernel = program(work, "aaaa0008");
    run("gzip", &["--keep", text(&kernel.stripped)]);
    run("zstd", &["--quiet", text(&work.join("aaaa0008.stripped.gz"))]);
    copy(&work.join("aaaa0008.stripped.gz.zst"), tree.join("boot/vmlinux.gz.zst"));
    expect(format!("/buildid/{}/executable", kernel.id), &kernel.stripped);
    let other = program(work, "aaaa0009");
    run("zstd", &["--quiet", text(&other.debug)]);
    copy(&work.join("aaaa0009.debug.zst"), tree.join("packed"));
    expect(format!("/buildid/{}/debuginfo", other.id), &other.debug);
    // What is nobody's debug file, and what would hold up whoever opens it.
    std::fs::write(tree.join("notes.txt"), "no release file").unwrap();
    std::fs::write(tree.join("broken.deb"), "!<arch>\nand no more").unwrap();
    std::fs::write(tree.join("half"), &std::fs::read(&loose.whole).unwrap()[..300]).unwrap();
    run("mkfifo", &[text(&tree.join("pipe"))]);
    expected
}

pub(crate) fn origins(trees: &[&Path]) -> Origins {
    let trees = trees.iter().map(|path| path.to_path_buf()).collect();
    Origins { trees, tree_interval: Duration::from_millis(200), ..Origins::default() }
}

pub(crate) async fn get(http: &Client, server: &Running, path: &str) -> (StatusCode, Vec<u8>) {
    let answer = http.get(server.url(path)).send().await.unwrap();
    (answer.status(), answer.bytes().await.unwrap().to_vec())
}

/// Waits until a path has this status.
#[track_caller]
fn within(started: Instant, path: &str, status: StatusCode) {
    assert!(started.elapsed() < PATIENCE, "{path} is {status} still");
}

pub(crate) async fn wait(http: &Client, server: &Running, path: &str, wanted: StatusCode) {
    let started = Instant::now();
    loop {
        let (status, _) = get(http, server, path).await;
        if status == wanted {
            return;
        }
        within(started, path, status);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn has_tools() -> bool {
    ["cc", "objcopy", "dpkg-deb", "tar", "xz", "zstd", "gzip"].iter().all(|tool| has(tool))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_served_by_themselves_and_out_of_packages_and_what_changes_is_seen() {
    if !has_tools() {
        return;
    }
    let (folder, work, tree) = folders();
    let expected = plant(&work, &tree);
    // Outside, and reached by a link.
    let outside = program(&work, "aaaa0099");
    symlink(&outside.debug, tree.join("outside.debug")).unwrap();
    symlink(&work, tree.join("all")).unwrap();

    let data = folder.path().join("data");
    let server = Running::start_with(&data, &origins(&[&tree])).await;
    let http = http();
    wait(&http, &server, "/buildid/aaaa0003/debuginfo", StatusCode::OK).await;
    for (path, bytes) in &expected {
        wait(&http, &server, path, StatusCode::OK).await;
        let (_, found) = get(&http, &server, path).await;
        assert!(found == *bytes, "{path}: {} bytes, expected {}", found.len(), bytes.len());
    }
    for path in ["/buildid/aaaa0099/debuginfo", "/buildid/aaaa0002/executable", "/s/team/buildid/aaaa0001/debuginfo"] {
        assert_eq!(get(&http, &server, path).await.0, StatusCode::NOT_FOUND, "{path}");
    }

    // As clients ask: headers, parts, conditions, bounds.
    for id in ["aaaa0001", "aaaa0003"] {
        let url = server.url(&format!("/buildid/{id}/debuginfo"));
        let bytes = &expected[&format!("/buildid/{id}/debuginfo")];
        let answer = http.get(&url).header(RANGE, "bytes=1-3").send().await.unwrap();
        assert_eq!(answer.headers()[CONTENT_RANGE], format!("bytes 1-3/{}", bytes.len()).as_str());
        assert_eq!(answer.headers()["x-debuginfod-sha256"], Digest::of(bytes).hex().as_str());
        let etag = answer.headers()[ETAG].clone();
        assert_eq!(answer.text().await.unwrap(), "ELF");
        let unchanged = http.get(&url).header(IF_NONE_MATCH, etag).send().await.unwrap();
        assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
        let too_large = http.get(&url).header("x-debuginfod-maxsize", "3").send().await.unwrap();
        assert_eq!(too_large.status(), StatusCode::NOT_ACCEPTABLE);
        let section = work.join("section");
        run(
            "objcopy",
            &["--dump-section", &format!(".debug_info={}", text(&section)), text(&work.join(id)), "/dev/null"],
        );
        let (status, found) = get(&http, &server, &format!("/buildid/{id}/section/.debug_info")).await;
        assert_eq!(status, StatusCode::OK);
        assert!(found == std::fs::read(&section).unwrap(), "{id}");
    }
    let key = format!("/symbols/_.debug/elf-buildid-sym-aaaa0003{}/_.debug", "0".repeat(32));
    assert!(get(&http, &server, &key).await.1 == expected["/buildid/aaaa0003/debuginfo"]);

    // By their paths, in packages too; and addresses get names, of a file in a package and of one by itself.
    let at = |path: &str| tree.join(path).to_str().unwrap().to_owned();
    let at_2 = at(".build-id/aa/aa0002.debug");
    let (by_path, by_name) = (format!("key=file&value={}", at("module.ko")), "key=file&value=vmlinux");
    let by_glob = format!("key=glob&value={}/*", at("boot"));
    for (query, found, archive) in [
        (
            "key=glob&value=/usr/bin/*",
            ("aaaa0003", "executable", "/usr/bin/packed".to_owned()),
            Some("pool/packed.deb"),
        ),
        ("key=file&value=aaaa0004.debug", ("aaaa0004", "debuginfo", "/aaaa0004.debug".to_owned()), Some("a.tar.xz")),
        ("key=buildid&value=aaaa0002", ("aaaa0002", "debuginfo", at_2.clone()), None),
        // What was compressed by itself is called as it is when it is unpacked.
        (&by_path, ("aaaa0007", "debuginfo", at("module.ko")), Some("module.ko.xz")),
        (by_name, ("aaaa0008", "executable", at("boot/vmlinux")), Some("boot/vmlinux.gz.zst")),
        (&by_glob, ("aaaa0008", "executable", at("boot/vmlinux")), Some("boot/vmlinux.gz.zst")),
        ("key=buildid&value=aaaa0009", ("aaaa0009", "debuginfo", at("packed")), Some("packed")),
    ] {
        let answer = http.get(server.url(&format!("/metadata?{query}"))).send().await.unwrap();
        let answer: serde_json::Value = answer.json().await.unwrap();
        let (id, kind, file) = found;
        let mut expected = serde_json::json!({ "buildid": id, "type": kind, "file": file });
        if let Some(archive) = archive {
            expected["archive"] = tree.join(archive).to_str().unwrap().into();
        }
        assert_eq!(answer, serde_json::json!({ "results": [expected], "complete": true }), "{query}");
        // The same is said beside the file.
        let url = server.url(&format!("/buildid/{id}/{kind}"));
        let answer = http.get(url).send().await.unwrap();
        let told = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(told("x-debuginfod-file").as_ref(), Some(&file), "{query}");
        assert_eq!(told("x-debuginfod-archive"), archive.map(|path| tree.join(path).to_str().unwrap().to_owned()));
    }
    for id in ["aaaa0001", "aaaa0003"] {
        let name = format!("f_{id}");
        let symbols = output("nm", &[text(&work.join(id))]);
        let start = symbols.lines().find_map(|line| line.strip_suffix(&format!(" T {name}"))).unwrap();
        let address = u64::from_str_radix(start, 16).unwrap();
        let body = serde_json::json!({ "platform": "linux", "debug_id": id, "addresses": [format!("{address:#x}")] });
        let answer = http.post(server.url("/api/v1/resolve")).json(&body).send().await.unwrap();
        let answer: serde_json::Value = answer.json().await.unwrap();
        let frame = &answer["frames"][0];
        assert_eq!(
            (&frame["frames"][0]["function"], &frame["proof"]),
            (&name.as_str().into(), &"none".into()),
            "{answer}"
        );
        // Breakpad's form of the id: its bytes as a GUID, zeros behind, age 0.
        let breakpad = format!("{}{}AAAA{}0", &id[6..], &id[4..6], "0".repeat(24)).to_uppercase();
        let body = serde_json::json!({ "memoryMap": [[id, breakpad]], "stacks": [[[0, address]]], "version": 5 });
        let answer = http.post(server.url("/symbolicate/v5")).json(&body).send().await.unwrap();
        let answer: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(answer["results"][0]["stacks"][0][0]["function"], name.as_str(), "{answer}");
    }

    // One goes, one comes, one becomes another.
    std::fs::remove_file(tree.join("pool/packed.deb")).unwrap();
    wait(&http, &server, "/buildid/aaaa0003/debuginfo", StatusCode::NOT_FOUND).await;
    copy(&outside.debug, tree.join("deep/er/loose"));
    wait(&http, &server, "/buildid/aaaa0099/debuginfo", StatusCode::OK).await;
    wait(&http, &server, "/buildid/aaaa0001/debuginfo", StatusCode::NOT_FOUND).await;

    // What a bundle has goes before what lies in a tree.
    let other = work.join("other");
    let id = "-Wl,--build-id=0xaaaa0002";
    run("cc", &["-g", "-O1", text(&work.join("aaaa0002.c")), "-o", text(&other), id]);
    publish(&server, folder.path(), "1", &[&other]).await;
    assert!(get(&http, &server, "/buildid/aaaa0002/debuginfo").await.1 == std::fs::read(&other).unwrap());
    server.stop().await;

    // What was read is known after a restart, before anything is read again; what lies elsewhere now is gone.
    // The cache is moved away as a whole: what still ends in the background writes to it.
    std::fs::rename(data.join("cache"), folder.path().join("cache")).unwrap();
    let server = looking_hourly(&data, &tree).await;
    assert_eq!(get(&http, &server, "/buildid/aaaa0004/debuginfo").await.0, StatusCode::OK);
    std::fs::rename(tree.join("a.tar.gz"), folder.path().join("a.tar.gz")).unwrap();
    assert_eq!(get(&http, &server, "/buildid/aaaa0005/debuginfo").await.0, StatusCode::NOT_FOUND);
    server.stop().await;
}

/// Ids and names that the trees answer for.
async fn keys(http: &Client, server: &Running) -> u64 {
    let metrics = String::from_utf8(get(http, server, "/metrics").await.1).unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix("symseal_tree_keys ")).unwrap();
    line.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_has_not_changed_is_not_opened_again_and_a_member_that_is_not_at_its_place_is_not_given() {
    if !has_tools() {
        return;
    }
    let (folder, work, tree) = folders();
    let [first, second] = ["aaaa0021", "aaaa0022"].map(|id| program(&work, id));
    let archive = tree.join("both.tar.xz");
    let make = format!(
        "tar -C {} -cf - {} {} | xz -0 --block-size=4KiB >{}",
        text(&work),
        text(first.debug.strip_prefix(&work).unwrap()),
        text(second.debug.strip_prefix(&work).unwrap()),
        text(&archive)
    );
    run("bash", &["-c", &make]);
    run("touch", &["-d", "@1600000000", text(&archive)]);
    let data = folder.path().join("data");
    let server = Running::start_with(&data, &origins(&[&tree])).await;
    let http = http();
    wait(&http, &server, "/buildid/aaaa0022/debuginfo", StatusCode::OK).await;
    // As old as the archive, however often its copy is made anew.
    let head = http.head(server.url("/buildid/aaaa0022/debuginfo")).send().await.unwrap();
    assert_eq!(head.headers()["last-modified"], "Sun, 13 Sep 2020 12:26:40 GMT");
    assert!(get(&http, &server, "/buildid/aaaa0022/debuginfo").await.1 == std::fs::read(&second.debug).unwrap());
    let known = keys(&http, &server).await;
    assert!(known > 0);
    // Who read a file would write the index anew.
    let index = || std::fs::metadata(data.join("trees.index")).unwrap().ino();
    let written = index();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((keys(&http, &server).await, index()), (known, written));
    server.stop().await;
    let server = looking_hourly(&data, &tree).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((keys(&http, &server).await, index()), (known, written));
    // Other bytes, which no look has seen.
    std::fs::write(&archive, vec![0; usize::try_from(std::fs::metadata(&archive).unwrap().len()).unwrap()]).unwrap();
    // The other member was never taken out.
    let answer = http.get(server.url("/buildid/aaaa0021/debuginfo")).send().await;
    assert!(!answer.is_ok_and(|answer| answer.status().is_success()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_that_lie_too_deep_are_counted() {
    if !has_tools() {
        return;
    }
    let (folder, work, tree) = folders();
    let [high, low] = ["aaaa0051", "aaaa0052"].map(|id| program(&work, id));
    let nested = |folders: usize| (0..folders).fold(tree.clone(), |path, _| path.join("d"));
    copy(&high.whole, nested(64).join("app"));
    copy(&low.whole, nested(65).join("app"));
    let server = Running::start_with(&folder.path().join("data"), &origins(&[&tree])).await;
    let http = http();
    wait(&http, &server, &format!("/buildid/{}/debuginfo", high.id), StatusCode::OK).await;
    // Again and again it is one.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let metrics = String::from_utf8(get(&http, &server, "/metrics").await.1).unwrap();
    assert!(metrics.contains("symseal_tree_folders_too_deep 1\n"), "{metrics}");
    assert_eq!(get(&http, &server, &format!("/buildid/{}/debuginfo", low.id)).await.0, StatusCode::NOT_FOUND);
    server.stop().await;
}

/// Debian's debuginfod, ended with the value.
struct Debuginfod(Child);

impl Drop for Debuginfod {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn debuginfod_answers_alike_over_the_same_tree() {
    if !has_tools() || !has("debuginfod") || !has("debuginfod-find") {
        return;
    }
    let (folder, work, tree) = folders();
    let expected = plant(&work, &tree);
    let server = Running::start_with(&folder.path().join("data"), &origins(&[&tree])).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let theirs = Command::new("debuginfod")
        .args([
            "-F",
            "-U",
            "-Z",
            ".tar.xz=xz -dc",
            "-Z",
            ".tar.gz=gzip -dc",
            "-Z",
            ".tar.zst=zstd -dc",
            "-p",
            &port.to_string(),
        ])
        .args(["-d", text(&folder.path().join("theirs.sqlite")), text(&tree)])
        .env_remove("DEBUGINFOD_URLS")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _theirs = Debuginfod(theirs);
    let http = http();
    let ask = async |path: &str| {
        let started = Instant::now();
        loop {
            let answer = http.get(format!("http://127.0.0.1:{port}{path}")).send().await;
            match answer {
                Ok(answer) if answer.status() == StatusCode::OK => return Some(answer.bytes().await.unwrap().to_vec()),
                _ if started.elapsed() > PATIENCE => return None,
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    for path in expected.keys() {
        // A file that is compressed by itself is none of debuginfod's.
        if ["aaaa0007", "aaaa0008", "aaaa0009"].iter().any(|id| path.contains(id)) {
            continue;
        }
        wait(&http, &server, path, StatusCode::OK).await;
        let theirs = ask(path).await.unwrap_or_else(|| panic!("debuginfod has no {path}"));
        assert!(get(&http, &server, path).await.1 == theirs, "{path}");
        // A slash too many is none to either.
        let path = &format!("{path}/");
        assert!(get(&http, &server, path).await.1 == theirs && ask(path).await.unwrap() == theirs, "{path}");
    }
    let mut find = Command::new("debuginfod-find");
    find.args(["debuginfo", "aaaa0003"])
        .env("DEBUGINFOD_URLS", server.url(""))
        .env("DEBUGINFOD_CACHE_PATH", folder.path().join("client"));
    let found = tokio::task::spawn_blocking(move || find.output()).await.unwrap().unwrap();
    assert!(found.status.success(), "{found:?}");
    let found = std::fs::read(String::from_utf8(found.stdout).unwrap().trim()).unwrap();
    assert!(found == expected["/buildid/aaaa0003/debuginfo"]);
    server.stop().await;
}

/// A package of rpm with one file, and what it has as the signature of that: a lead, two headers and a payload that is not packed.
fn signed_package(path: &str, file: &[u8], signature: &str) -> Vec<u8> {
    let header = |tags: &[(u32, u32, &[u8])]| {
        let (mut index, mut store) = (Vec::new(), Vec::new());
        for (tag, kind, bytes) in tags {
            store.resize(store.len().next_multiple_of(4), 0_u8);
            index.extend([*tag, *kind, store.len() as u32, 1].map(u32::to_be_bytes).concat());
            store.extend(*bytes);
        }
        let sizes = [0, tags.len() as u32, store.len() as u32].map(u32::to_be_bytes).concat();
        [&[0x8e, 0xad, 0xe8, 1], &sizes[..], &index, &store].concat()
    };
    let (folder, name) = path.rsplit_once('/').unwrap();
    let text = |text: &str| [text.as_bytes(), &[0]].concat();
    let mut package = [b"\xed\xab\xee\xdb\x03\0".to_vec(), vec![0; 90]].concat();
    // File signatures; then modes, folders' numbers, names and folders. (rpm.org, "RPM Tags")
    package.extend(header(&[(274, 8, &text(signature))]));
    package.resize(package.len().next_multiple_of(8), 0);
    package.extend(header(&[
        (1030, 3, &0o100_644_u16.to_be_bytes()),
        (1116, 4, &[0; 4]),
        (1117, 8, &text(name)),
        (1118, 8, &text(&format!("{folder}/"))),
    ]));
    let start = package.len();
    let mut entry = |name: &str, mode: u32, content: &[u8]| {
        let fields = [1, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        package.extend(b"070701");
        package.extend(fields.map(|field| format!("{field:08x}")).concat().bytes());
        for bytes in [text(name), content.to_vec()] {
            package.extend(bytes);
            package.resize(start + (package.len() - start).next_multiple_of(4), 0);
        }
    };
    entry(&format!(".{path}"), 0o100_644, file);
    entry("TRAILER!!!", 0, b"");
    package
}

#[tokio::test]
async fn a_file_of_a_package_comes_with_the_signature_that_the_package_has_for_it() {
    if !has("cc") || !has("objcopy") {
        return;
    }
    let (folder, work, tree) = folders();
    let program = program(&work, "aaaa0f0e");
    // As many bytes as a key of 4096 bits signs with, behind a header.
    let signature = format!("030204{}", "5a".repeat(520));
    let bytes = std::fs::read(&program.whole).unwrap();
    std::fs::write(tree.join("app.rpm"), signed_package("/usr/bin/app", &bytes, &signature)).unwrap();
    let other = self::program(&work, "aaaa0f0f");
    let unsigned = signed_package("/usr/bin/other", &std::fs::read(&other.whole).unwrap(), "");
    std::fs::write(tree.join("other.rpm"), unsigned).unwrap();
    // The second start reads the index of the first.
    for _ in 0..2 {
        let server = looking_hourly(&folder.path().join("data"), &tree).await;
        let ask = async |id: &str, rest: &str| {
            let url = server.url(&format!("/buildid/{id}/{rest}"));
            let started = Instant::now();
            loop {
                let answer = http().get(&url).send().await.unwrap();
                if answer.status() == StatusCode::OK {
                    return answer;
                }
                assert!(started.elapsed() < PATIENCE, "{url}: {}", answer.status());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let of = |answer: &reqwest::Response| {
            answer.headers().get("x-debuginfod-imasignature").map(|value| value.to_str().unwrap().to_owned())
        };
        let answer = ask(program.id, "executable").await;
        assert_eq!(of(&answer), Some(signature.clone()));
        assert_eq!(answer.headers()["x-debuginfod-file"], "/usr/bin/app");
        assert!(answer.bytes().await.unwrap() == bytes, "other bytes");
        // It is one of the file, not of a part of it.
        assert_eq!(of(&ask(program.id, "section/.text").await), None);
        assert_eq!(of(&ask(other.id, "executable").await), None);
        server.stop().await;
    }
}
