//! Holds the manifests to `ARCHITECTURE.md`: who may use whom, what the pure rooms must not pull in,
//! and how many direct dependencies the stand-alone rooms may have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn every_arrow_between_rooms_is_in_the_table() {
    let table = allowed_arrows(&architecture());
    let mut rooms = rooms(&cargo_metadata());
    // The C face is no member of the workspace, and its arrows count all the same.
    rooms.extend(self::rooms(&metadata_of("unwind/capi/Cargo.toml")));
    assert_eq!(
        rooms.values().map(|room| room.folder.clone()).collect::<BTreeSet<_>>(),
        table.keys().cloned().collect(),
        "the rooms of the workspace and those of the table differ"
    );
    let mut wrong = Vec::new();
    for room in rooms.values() {
        for dependency in &room.dependencies {
            if let Some(used) = rooms.get(dependency)
                && !table[&room.folder].contains(&used.folder)
            {
                wrong.push(format!("{} → {}", room.folder, used.folder));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that ARCHITECTURE.md lacks: {wrong:?}");
}

#[test]
fn the_pure_rooms_pull_in_nothing_from_the_deny_list() {
    let denied = deny_list(&architecture());
    let metadata = cargo_metadata();
    let graph = resolved_graph(&metadata);
    let mut wrong = Vec::new();
    for (name, room) in rooms(&metadata) {
        if !(room.folder.starts_with("formats/") || room.folder == "unwind") {
            continue;
        }
        for reached in reachable(&graph, &name) {
            if denied.contains(&reached) {
                wrong.push(format!("{} → … → {reached}", room.folder));
            }
        }
    }
    assert!(wrong.is_empty(), "dependencies from the deny list: {wrong:?}");
}

#[test]
fn the_stand_alone_rooms_keep_their_dependency_budget() {
    let budgets = budgets(&architecture());
    assert!(!budgets.is_empty(), "ARCHITECTURE.md has no budgets");
    let rooms = rooms(&cargo_metadata());
    for (folder, budget) in budgets {
        let room = rooms.values().find(|room| room.folder == folder).unwrap_or_else(|| panic!("no room {folder}"));
        let used = room.dependencies.len();
        assert!(
            used <= budget,
            "{folder} has {used} direct dependencies, its budget is {budget}: {:?}",
            room.dependencies
        );
    }
}

#[test]
fn a_profiler_that_uses_the_resolver_compiles_neither_a_runtime_nor_sigstore() {
    // As it is taken without the feature `online`, whatever else of the workspace asks for that.
    let tree = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", "symseal-resolver", "--edges", "normal,build", "--prefix", "none"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8_lossy(&tree.stdout);
    let reached: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(reached.contains("symseal-process"), "{reached:?}");
    let is_wrong = |name: &&&str| {
        name.starts_with("sigstore") || ["tokio", "hyper", "reqwest", "rustls", "sqlx", "axum"].contains(*name)
    };
    let wrong: Vec<&&str> = reached.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Where a room's tests are one program, a file that its `main.rs` does not name would be compiled by nobody.
#[test]
fn no_file_of_tests_is_left_out() {
    let folders = rooms(&cargo_metadata()).into_values().map(|room| room.folder).chain([".".to_owned()]);
    let (mut left_out, mut suites) = (Vec::new(), 0);
    for folder in folders.map(|folder| Path::new(ROOT).join(folder)) {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        if !manifest.contains("autotests = false") {
            continue;
        }
        suites += 1;
        let suite = std::fs::read_to_string(folder.join("tests/main.rs")).expect("the suite");
        for entry in std::fs::read_dir(folder.join("tests")).expect("tests").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let is_known = match name.strip_suffix(".rs") {
                Some(module) => suite.contains(&format!("mod {module};\n")),
                None => !path.join("main.rs").exists(),
            };
            let target = if path.is_dir() { format!("tests/{name}/main.rs") } else { format!("tests/{name}") };
            if !is_known && !manifest.contains(&format!("path = \"{target}\"")) {
                left_out.push(folder.join(target));
            }
        }
    }
    assert!(suites >= 9, "only {suites} rooms have one program of tests");
    assert!(left_out.is_empty(), "tests that are never compiled: {left_out:?}");
}

#[test]
fn a_missing_arrow_would_be_noticed() {
    // The checks above must not pass because they read nothing.
    let table = allowed_arrows(&architecture());
    assert!(table["builder"].contains("artifact"));
    assert!(!table["formats/symx"].contains("artifact"));
    let graph = resolved_graph(&cargo_metadata());
    assert!(reachable(&graph, "symseal-server").contains("tokio"));
    assert!(deny_list(&architecture()).contains("tokio"));
}

struct Room {
    folder: String,
    /// Names of the packages that it names as normal or build dependencies.
    dependencies: BTreeSet<String>,
}

fn architecture() -> String {
    std::fs::read_to_string(Path::new(ROOT).join("ARCHITECTURE.md")).expect("ARCHITECTURE.md")
}

/// Not offline: the graph has packages of other platforms, which building here does not download.
fn cargo_metadata() -> Value {
    metadata_of("Cargo.toml")
}

/// Of the workspace with this manifest.
fn metadata_of(manifest: &str) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path", manifest])
        .current_dir(ROOT)
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON of cargo metadata")
}

/// The rooms by package name: every workspace member but the root package.
fn rooms(metadata: &Value) -> BTreeMap<String, Room> {
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array().expect("members").iter().filter_map(Value::as_str).collect();
    let mut rooms = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let folder = Path::new(package["manifest_path"].as_str().expect("manifest path")).parent().expect("folder");
        if !members.contains(package["id"].as_str().expect("id")) || folder == Path::new(ROOT) {
            continue;
        }
        let folder = folder.strip_prefix(ROOT).expect("a member inside the workspace");
        let dependencies = package["dependencies"]
            .as_array()
            .expect("dependencies")
            .iter()
            .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
            .map(|dependency| dependency["name"].as_str().expect("name").to_owned())
            .collect();
        rooms.insert(
            package["name"].as_str().expect("name").to_owned(),
            Room { folder: folder.to_str().expect("UTF-8 folder").to_owned(), dependencies },
        );
    }
    rooms
}

/// Package name → names of what it pulls in (development dependencies apart), as resolved.
fn resolved_graph(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| (package["id"].as_str().expect("id"), package["name"].as_str().expect("name")))
        .collect();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().expect("nodes") {
        let used = graph.entry(names[node["id"].as_str().expect("id")].to_owned()).or_default();
        for dependency in node["deps"].as_array().expect("deps") {
            let kinds = dependency["dep_kinds"].as_array().expect("kinds");
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                used.insert(names[dependency["pkg"].as_str().expect("pkg")].to_owned());
            }
        }
    }
    graph
}

fn reachable(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(name) = todo.pop() {
        for used in graph.get(name).into_iter().flatten() {
            if seen.insert(used.clone()) {
                todo.push(used);
            }
        }
    }
    seen
}

/// The lines of the section under the first heading that holds `title`.
fn section<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let mut lines = page.lines().skip_while(|line| !(line.starts_with('#') && line.contains(title)));
    assert!(lines.next().is_some(), "ARCHITECTURE.md has no section {title:?}");
    lines.take_while(|line| !line.starts_with('#')).collect()
}

/// The rows of the section's table: the words in backquotes, cell by cell.
fn table_rows(page: &str, title: &str) -> Vec<Vec<Vec<String>>> {
    section(page, title)
        .into_iter()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect())
                .collect()
        })
        .collect()
}

fn allowed_arrows(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    table_rows(page, "Who may use whom")
        .into_iter()
        .map(|row| (row[0][0].clone(), row[1].iter().cloned().collect()))
        .collect()
}

fn deny_list(page: &str) -> BTreeSet<String> {
    section(page, "must not pull in")
        .into_iter()
        .filter(|line| line.starts_with("    "))
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect()
}

fn budgets(page: &str) -> Vec<(String, usize)> {
    section(page, "Dependency budgets")
        .into_iter()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].trim_matches('`').to_owned(), cells[1].parse().expect("a number"))
        })
        .collect()
}
