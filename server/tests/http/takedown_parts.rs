//! Parts of bundles that are taken down by themselves: nothing is told or made of them any more.

use reqwest::StatusCode;
use serde_json::Value;
use symseal_bundle::{LayoutDir, oci};
use symseal_registry::push;
use symseal_server::Tombstones;

use crate::foreign_blobs::{Release, compile};
use crate::support::programs::has;
use crate::support::{Running, http, options};
use crate::takedown::{Scene, becomes, config, json_of, note, status};

#[tokio::test]
async fn a_symbol_index_that_is_taken_down_is_no_part_of_what_is_told_of_its_bundle() {
    let Some(Scene { root, server, first, tombstones, .. }) = Scene::start().await else { return };
    let layout = LayoutDir::open(root.path().join("layout-1")).unwrap();
    let json = |digest: &str| -> Value {
        serde_json::from_slice(&layout.read_blob(&digest.parse().unwrap(), oci::MAX_MANIFEST_BYTES).unwrap()).unwrap()
    };
    let manifest = json(json(&first.to_string())["manifests"][0]["digest"].as_str().unwrap());
    let layers = manifest["layers"].as_array().unwrap();
    let index =
        layers.iter().find(|layer| layer["mediaType"] == oci::SYMBOL_INDEX).unwrap()["digest"].as_str().unwrap();
    for path in [format!("/api/v1/bundles/{first}"), format!("/bundles/{first}")] {
        assert_eq!(status(&server, &path).await, StatusCode::OK);
    }
    tombstones.take_down(index, note()).await.unwrap();
    for path in [format!("/api/v1/bundles/{first}"), format!("/bundles/{first}")] {
        becomes(&server, &path, StatusCode::GONE).await;
    }
}

#[tokio::test]
async fn a_table_of_sources_that_is_taken_down_leads_to_no_source() {
    if !has("cc") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().canonicalize().unwrap();
    let (binary, path) = compile(&folder);
    let release = Release::build(&folder, "release", &binary);
    let server = Running::start_as(config(root.path())).await;
    for digest in [&release.sources, &release.bundle] {
        push(&release.layout, digest, &server.reference("app:1"), &options()).await.unwrap();
    }
    let path = format!("/buildid/abcdef01/source{path}");
    assert_eq!(status(&server, &path).await, StatusCode::OK);
    let table = release.sources()["layers"][0]["digest"].as_str().unwrap().to_owned();
    let tombstones = Tombstones::open(&config(root.path())).await.unwrap();
    tombstones.take_down(&table, note()).await.unwrap();
    becomes(&server, &path, StatusCode::NOT_FOUND).await;
    tombstones.lift(&table).await.unwrap();
    becomes(&server, &path, StatusCode::OK).await;
}

#[tokio::test]
async fn a_symbol_file_that_was_made_before_is_made_anew_without_what_was_taken_down() {
    let Some(Scene { root, server, first, tombstones, .. }) = Scene::start().await else { return };
    // With a place for what is made.
    server.stop().await;
    let server = Running::start(&root.path().join("data")).await;
    // `abcdef01` in Breakpad's form.
    let path = "/symbols/app1/01EFCDAB0000000000000000000000000/app1.sym";
    let text = http().get(server.url(path)).send().await.unwrap().text().await.unwrap();
    assert!(text.contains(" main\n") && text.contains("STACK CFI"), "{text}");
    let bundle = json_of(&server, &format!("/api/v1/bundles/{first}")).await;
    let files = bundle["index"]["linux"]["abcdef01"]["files"].as_array().unwrap();
    for role in ["unwind-table", "symbol-table"] {
        let file = files.iter().find(|file| file["role"] == role).unwrap_or_else(|| panic!("{role}: {bundle}"));
        let digest = file["sha256"].as_str().unwrap();
        assert_eq!(status(&server, path).await, StatusCode::OK, "{role}");
        tombstones.take_down(digest, note()).await.unwrap();
        becomes(&server, path, StatusCode::NOT_FOUND).await;
        tombstones.lift(digest).await.unwrap();
        becomes(&server, path, StatusCode::OK).await;
    }
}
