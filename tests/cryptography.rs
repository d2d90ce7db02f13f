//! Where HTTP clients are made: each room has one place, in which the cryptography of TLS is chosen first. A client that is made elsewhere would end the
//! program where nobody had chosen, and one day be built by other cryptography than the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How a client comes to be, and how a provider does.
const CLIENTS: [&str; 4] = ["Client::builder()", "Client::new()", "ClientBuilder::new()", "reqwest::get("];
const CHOICE: &str = ".install_default()";

/// Folders of sources that end up in the programs, by room.
const ROOMS: [&str; 9] = ["src", "registry", "sealer", "resolver", "builder", "capture", "replay", "server", "process"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn each_room_makes_its_http_clients_in_one_place_which_chooses_the_cryptography() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
    for room in ROOMS {
        let folder = if room == "src" { root.join("src") } else { root.join(room).join("src") };
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let makes = CLIENTS.iter().any(|client| text.contains(client));
            let chooses = text.contains(CHOICE);
            assert_eq!(makes, chooses, "{}: a client without a choice, or a choice without a client", file.display());
            // reqwest tells whoever a server leads to where it was asked; an address may hold a token.
            assert_eq!(makes, text.contains(".referer(false)"), "{}: a client that tells where it was", file.display());
            if chooses {
                places.entry(room).or_default().push(file);
            }
        }
    }
    for (room, files) in &places {
        assert_eq!(files.len(), 1, "{room}: {files:?}");
    }
    let rooms: Vec<&str> = places.into_keys().collect();
    assert_eq!(rooms, ["registry", "resolver", "sealer", "server", "src"]);
}
