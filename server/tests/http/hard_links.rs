//! Files below `--index` that have several names: `/metadata` tells what elfutils' server tells of them (0.192; older ones have no such path).

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::programs::{has, run};
use crate::support::{Running, http};
use crate::trees::{copy, folders, origins, program, text};

const PATIENCE: Duration = Duration::from_secs(20);

/// The results for a pattern, once there are so many.
async fn told(server: &Running, pattern: &str, wanted: usize) -> Value {
    let url = server.url(&format!("/metadata?key=glob&value={pattern}"));
    let started = Instant::now();
    loop {
        let answer: Value = http().get(&url).send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["complete"], true, "{answer}");
        if answer["results"].as_array().unwrap().len() == wanted {
            return answer["results"].clone();
        }
        assert!(started.elapsed() < PATIENCE, "{pattern}: {answer}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn hard_link(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::hard_link(from, to).unwrap();
}

#[tokio::test]
async fn every_name_of_a_package_is_told_and_within_it_the_name_that_has_the_bytes() {
    if ["cc", "objcopy", "dpkg-deb"].iter().any(|tool| !has(tool)) {
        return;
    }
    let (folder, work, tree) = folders();
    let [alone, packed] = ["aaaa0091", "aaaa0092"].map(|id| program(&work, id));
    let [one, two] = ["one", "two"].map(|name| copy(&alone.stripped, tree.join(format!("{name}/app"))));
    std::fs::remove_file(&two).unwrap();
    hard_link(&one, &two);
    // A tar has the bytes behind the first name; the other ones refer to it.
    let root = work.join("deb");
    let first = copy(&packed.stripped, root.join("usr/bin/first"));
    hard_link(&first, &root.join("usr/bin/second"));
    std::fs::create_dir_all(root.join("DEBIAN")).unwrap();
    let control = "Package: packed\nVersion: 1\nArchitecture: amd64\nMaintainer: a <a@example.org>\nDescription: a\n";
    std::fs::write(root.join("DEBIAN/control"), control).unwrap();
    let package = tree.join("one/packed.deb");
    run("dpkg-deb", &["--build", "--root-owner-group", text(&root), text(&package)]);
    hard_link(&package, &tree.join("two/same.deb"));

    let server = Running::start_with(&folder.path().join("data"), &origins(&[&tree])).await;
    let tree = tree.canonicalize().unwrap();
    let at = |path: &str| text(&tree.join(path)).to_owned();
    let of = |id: &str, file: &str, archive: Option<&str>| {
        let mut result = json!({ "type": "executable", "buildid": id, "file": file });
        result.as_object_mut().unwrap().extend(archive.map(|archive| ("archive".to_owned(), json!(at(archive)))));
        result
    };
    assert_eq!(
        told(&server, &at("*/app"), 2).await,
        json!([of("aaaa0091", &at("one/app"), None), of("aaaa0091", &at("two/app"), None)])
    );
    let member = |archive| of("aaaa0092", "/usr/bin/first", Some(archive));
    assert_eq!(told(&server, "/usr/bin/*", 2).await, json!([member("one/packed.deb"), member("two/same.deb")]));
    assert_eq!(told(&server, "/usr/bin/second", 0).await, json!([]));
    server.stop().await;
}
