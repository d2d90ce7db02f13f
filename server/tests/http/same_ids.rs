//! Symbol files of several modules with one id: build systems that make up ids give them so.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::breakpad::{found, serving, upload};
use crate::support::programs::{Fixture, has, output, publish, run};

#[tokio::test]
async fn of_symbol_files_with_one_id_the_one_that_has_the_name_answers() {
    let fixture = Fixture::new().await;
    let folder = fixture.root.path();
    let text = |id: &str, name: &str| format!("MODULE Linux x86_64 {id} {name}\nFUNC 1000 100 0 in_{name}\n");
    let (other, one) = ("11111111111111111111111111111111A", "7C2E1D6F5B4A39281706F5E4D3C2B1A00");
    for name in ["libalpha.so", "libbeta.so", "libgamma.so", "App.pdb"] {
        // As stores of symbol files have them, and as somebody called them.
        let title = format!("{}.sym", name.trim_end_matches(".pdb"));
        for (id, title) in [(other, title), (one, format!("symbols-{}", name.len()))] {
            std::fs::write(folder.join(&title), text(id, name)).unwrap();
            upload(&fixture, &folder.join(title)).await;
        }
    }
    for id in [other, one] {
        for (name, symbol_file) in
            [("libalpha.so", "libalpha.so.sym"), ("LibBeta.so", "libbeta.so.sym"), ("App.pdb", "App.sym")]
        {
            let path = format!("/symbols/{name}/{id}/{symbol_file}");
            let got = fixture.get(&path).await.text().await.unwrap();
            assert!(got.to_lowercase().contains(&format!("in_{name}\n").to_lowercase()), "{path}: {got}");
        }
        // The id is all that somebody else may know.
        let other = fixture.get(&format!("/symbols/libnone.so/{id}/libnone.so.sym")).await;
        assert_eq!(other.status(), StatusCode::OK);
    }
    let tree = tempfile::tempdir().unwrap();
    for name in ["libalpha.so", "libbeta.so"] {
        std::fs::write(tree.path().join(format!("{name}.sym")), text(one, name)).unwrap();
    }
    let fixture = serving(tree.path()).await;
    for name in ["libbeta.so", "libalpha.so"] {
        // A look at the tree may have found one of them so far.
        let mut got = String::new();
        for _ in 0..50 {
            got = found(&fixture, &format!("/symbols/{name}/{one}/{name}.sym")).await;
            if got.contains(&format!("in_{name}\n")) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(got, text(one, name));
    }
}

/// The name that a server has for an address of a module, by the API of the Firefox Profiler and by ours.
async fn named(fixture: &Fixture, id: &str, name: &str) -> [Value; 2] {
    let asked = json!({"jobs": [{"memoryMap": [[name, id]], "stacks": [[[0, 0x1010]]]}]});
    let of_v5 = posted(fixture, "/symbolicate/v5", &asked).await;
    let asked = json!({"platform": "macos", "debug_id": id, "debug_file": name, "addresses": ["0x1010"]});
    let ours = posted(fixture, "/api/v1/resolve", &asked).await;
    [of_v5["results"][0]["stacks"][0][0]["function"].clone(), ours["frames"][0]["frames"][0]["function"].clone()]
}

async fn posted(fixture: &Fixture, path: &str, asked: &Value) -> Value {
    let answer = fixture.http.post(fixture.server.url(path)).json(asked).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    answer.json().await.unwrap()
}

#[tokio::test]
async fn addresses_of_modules_with_one_id_are_named_by_the_file_that_has_the_name() {
    let fixture = Fixture::new().await;
    let folder = fixture.root.path();
    let (titled, untitled) = ("11111111111111111111111111111111", "7C2E1D6F5B4A39281706F5E4D3C2B1A0");
    for name in ["libalpha.dylib", "libbeta.dylib", "libgamma.dylib"] {
        for (id, title) in [(titled, format!("{name}.sym")), (untitled, format!("symbols-{}", name.len()))] {
            std::fs::write(folder.join(&title), format!("MODULE mac x86_64 {id}0 {name}\nFUNC 1000 100 0 in_{name}\n"))
                .unwrap();
            upload(&fixture, &folder.join(title)).await;
        }
    }
    for id in [titled, untitled].map(|id| format!("{id}0")) {
        for name in ["libbeta.dylib", "libalpha.dylib", "libgamma.dylib"] {
            let expected = json!(format!("in_{name}"));
            assert_eq!(named(&fixture, &id, name).await, [expected.clone(), expected], "{id}");
        }
        // Both in one request.
        let modules = [["libalpha.dylib", id.as_str()], ["libbeta.dylib", &id]];
        let asked = json!({"jobs": [{"memoryMap": modules, "stacks": [[[0, 0x1010], [1, 0x1010]]]}]});
        let answer = posted(&fixture, "/symbolicate/v5", &asked).await;
        let frames = &answer["results"][0]["stacks"][0];
        assert_eq!([&frames[0]["function"], &frames[1]["function"]], ["in_libalpha.dylib", "in_libbeta.dylib"]);
    }
}

/// A build-id, and Breakpad's form of it.
const ID: (&str, &str) = ("0123456789abcdef0123456789abcdef01234567", "67452301AB89EFCD0123456789ABCDEF0");

#[tokio::test]
async fn names_are_of_the_bundle_whose_file_answers() {
    if !has("cc") || !has("nm") {
        return;
    }
    let fixture = Fixture::new().await;
    let folder = fixture.root.path();
    // The larger file answers, and the other one has the larger table.
    let large =
        "char filler[200000] = {1};\nint of_the_file(void) { return 7; }\nint main(void) { return of_the_file(); }";
    let many: String = (0..60).map(|at| format!("int of_the_table_{at}(int x) {{ return x + {at}; }}\n")).collect();
    let mut files = Vec::new();
    for (version, text) in [("1", large.to_owned()), ("2", many + "int main(void) { return 0; }")] {
        let (source, binary) = (folder.join(format!("app{version}.c")), folder.join(version).join("app"));
        std::fs::create_dir_all(binary.parent().unwrap()).unwrap();
        std::fs::write(&source, text).unwrap();
        let id = format!("-Wl,--build-id=0x{}", ID.0);
        run("cc", &["-O0", "-g", source.to_str().unwrap(), "-o", binary.to_str().unwrap(), &id]);
        publish(&fixture.server, folder, version, &[&binary]).await;
        files.push(binary);
    }
    let answered = fixture.get(&format!("/buildid/{}/debuginfo", ID.0)).await.bytes().await.unwrap();
    assert!(answered == std::fs::read(&files[0]).unwrap(), "the larger one was to answer");
    let symbols = output("nm", &[files[0].to_str().unwrap()]);
    let line = symbols.lines().find(|line| line.ends_with(" of_the_file")).unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();

    let asked = json!({"jobs": [{"memoryMap": [["app", ID.1]], "stacks": [[[0, address]]]}]});
    let of_v5 = posted(&fixture, "/symbolicate/v5", &asked).await;
    assert_eq!(of_v5["results"][0]["stacks"][0][0]["function"], "of_the_file", "{of_v5}");
    let asked = json!({"platform": "linux", "debug_id": ID.0, "addresses": [format!("{address:#x}")]});
    let ours = posted(&fixture, "/api/v1/resolve", &asked).await;
    assert_eq!(ours["frames"][0]["frames"][0]["function"], "of_the_file", "{ours}");
    let symbol_file = found(&fixture, &format!("/symbols/app/{}/app.sym", ID.1)).await;
    assert!(symbol_file.contains(" of_the_file\n") && !symbol_file.contains("of_the_table"), "{symbol_file}");
}
