//! What nothing names goes from the object store that two servers share, and what was acknowledged never does: while clients push, mount, pull and delete
//! through both of them, and one is killed over what it collects.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::objects::ObjectServer;
use crate::program::{Ran, command};
use crate::replicas::Scene;
use crate::scene::{ask, get, noise, publish, sha256, wait_until};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const REPOSITORIES: [&str; 3] = ["one", "two/deep", "three"];

/// Longer than a push takes here, where no server is killed.
const GRACE: Duration = Duration::from_secs(8);

/// How long clients come and go.
const BUSY: Duration = Duration::from_secs(60);

/// In which everything is gone in the end: a killed server's work is let go after 40 s, and then takes its two grace periods.
const GONE_WITHIN: Duration = Duration::from_secs(180);

/// Status and body; `None` where the server is not there, or was killed meanwhile.
fn request(address: &str, method: &str, path: &str, media_type: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!(
        "{method} /v2/{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let body = answer.split_off(end + 4);
    let is_whole = method == "HEAD" || length.is_none_or(|length| length.trim().parse() == Ok(body.len()));
    is_whole.then_some((status, body))
}

/// Numbers that are the same in each run, for one task.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": sha256(bytes), "size": bytes.len() })
}

#[derive(Default)]
struct Seen {
    pushed: AtomicU64,
    pulled: AtomicU64,
    deleted: AtomicU64,
    mounted: AtomicU64,
    /// Told to try again, as a server was killed or something was on its way out.
    again: AtomicU64,
    /// A push that took longer than the grace period, and was told so.
    too_slow: AtomicU64,
}

/// What clients share.
struct Clients {
    servers: [String; 2],
    stock: Vec<Vec<u8>>,
    /// The manifests that were acknowledged and that nobody has begun to delete, by repository and digest.
    acknowledged: Mutex<BTreeMap<(&'static str, String), String>>,
    /// Those of pushes that came to nothing: they may be there, and stay until they are deleted by name.
    strays: Mutex<Vec<(&'static str, String)>>,
    seen: Seen,
    ended: AtomicBool,
    count: AtomicU64,
}

impl Clients {
    /// One of the servers is asked, and where it is not there, the other.
    fn ask(&self, dice: &mut Dice, method: &str, path: &str, media_type: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let first = dice.roll(2);
        // One that starts says so (503), and the other one is asked, as where nobody listens.
        let ask = |which: &usize| {
            let answer = request(&self.servers[*which], method, path, media_type, body);
            answer.filter(|(status, _)| *status != 503)
        };
        [first, 1 - first].iter().find_map(ask)
    }

    fn status(&self, dice: &mut Dice, method: &str, path: &str) -> Option<u16> {
        Some(self.ask(dice, method, path, "application/octet-stream", &[])?.0)
    }

    /// A layer comes as clients send it: asked for, mounted, or pushed.
    fn layer(&self, dice: &mut Dice, repository: &str, bytes: &[u8]) -> Option<()> {
        let digest = sha256(bytes);
        if self.status(dice, "HEAD", &format!("{repository}/blobs/{digest}"))? == 200 {
            return Some(());
        }
        let from = REPOSITORIES[dice.roll(3)];
        if self.status(dice, "POST", &format!("{repository}/blobs/uploads/?mount={digest}&from={from}"))? == 201 {
            self.seen.mounted.fetch_add(1, Ordering::SeqCst);
            return Some(());
        }
        let path = format!("{repository}/blobs/uploads/?digest={digest}");
        let (status, body) = self.ask(dice, "POST", &path, "application/octet-stream", bytes)?;
        assert_eq!(status, 201, "{path}: {}", String::from_utf8_lossy(&body));
        Some(())
    }

    fn manifest(&self, dice: &mut Dice, repository: &str) -> Option<String> {
        let layers: Vec<&[u8]> =
            (0..=dice.roll(3)).map(|_| self.stock[dice.roll(self.stock.len())].as_slice()).collect();
        for layer in &layers {
            self.layer(dice, repository, layer)?;
        }
        let layers: Vec<_> = layers.iter().map(|bytes| descriptor("application/octet-stream", bytes)).collect();
        // No two are the same, so that nobody deletes what another one pushes.
        let number = self.count.fetch_add(1, Ordering::SeqCst).to_string();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "a/b", "layers": layers,
            "annotations": { "number": number },
        });
        Some(manifest.to_string())
    }

    /// `None` where it is to be tried again.
    fn put(&self, dice: &mut Dice, repository: &str, media_type: &str, text: &str, began: Instant) -> Option<()> {
        let path = format!("{repository}/manifests/{}", sha256(text.as_bytes()));
        let (status, body) = self.ask(dice, "PUT", &path, media_type, text.as_bytes())?;
        let took = began.elapsed();
        if status == 404 && took + Duration::from_secs(2) >= GRACE {
            self.seen.too_slow.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(status, 201, "a push of {took:?}: a client was told of what is not here: {body}");
        Some(())
    }

    /// What it names comes to `named`.
    fn push(&self, dice: &mut Dice, repository: &'static str, named: &mut Vec<(&'static str, String)>) -> Option<()> {
        let began = Instant::now();
        let mut text = self.manifest(dice, repository)?;
        let mut media_type = MANIFEST;
        if dice.roll(3) == 0 {
            let children = [text, self.manifest(dice, repository)?];
            for child in &children {
                named.push((repository, sha256(child.as_bytes())));
                self.put(dice, repository, MANIFEST, child, began)?;
            }
            let children = children.map(|child| descriptor(MANIFEST, child.as_bytes()));
            text = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": children }).to_string();
            media_type = INDEX;
        }
        named.push((repository, sha256(text.as_bytes())));
        self.put(dice, repository, media_type, &text, began)?;
        self.acknowledged.lock().unwrap().insert((repository, sha256(text.as_bytes())), text);
        Some(())
    }

    fn push_on(&self, seed: u64) {
        let mut dice = Dice(seed);
        while !self.ended.load(Ordering::SeqCst) {
            let (repository, mut named) = (REPOSITORIES[dice.roll(3)], Vec::new());
            if self.push(&mut dice, repository, &mut named).is_some() {
                self.seen.pushed.fetch_add(1, Ordering::SeqCst);
            } else {
                self.seen.again.fetch_add(1, Ordering::SeqCst);
                // An index goes before what it names.
                self.strays.lock().unwrap().extend(named.into_iter().rev());
            }
        }
    }

    fn pick(&self, dice: &mut Dice) -> Option<(&'static str, String, String)> {
        let acknowledged = self.acknowledged.lock().unwrap();
        let at = dice.roll(acknowledged.len().max(1));
        acknowledged.iter().nth(at).map(|((repository, digest), text)| (*repository, digest.clone(), text.clone()))
    }

    fn is_kept(&self, repository: &'static str, digest: &str) -> bool {
        self.acknowledged.lock().unwrap().contains_key(&(repository, digest.to_owned()))
    }

    /// The first thing that a manifest needs and a server does not give, byte for byte.
    fn hole(&self, dice: &mut Dice, repository: &str, text: &str) -> Option<String> {
        let (mut open, mut hole) = (vec![text.to_owned()], None);
        while let Some(text) = open.pop() {
            let path = format!("{repository}/manifests/{}", sha256(text.as_bytes()));
            match self.ask(dice, "GET", &path, "", &[]) {
                Some((200, body)) if body == text.as_bytes() => {}
                None => return None,
                Some((status, _)) => drop(hole.get_or_insert(format!("{path}: {status}"))),
            }
            let manifest: Value = serde_json::from_str(&text).unwrap();
            let list = |name: &str| manifest[name].as_array().cloned().unwrap_or_default();
            for (kind, child) in list("layers")
                .iter()
                .map(|it| ("blobs", it))
                .chain(list("manifests").iter().map(|it| ("manifests", it)))
            {
                let digest = child["digest"].as_str().unwrap();
                let path = format!("{repository}/{kind}/{digest}");
                match self.ask(dice, "GET", &path, "", &[]) {
                    Some((200, body)) if sha256(&body) == digest => {
                        if kind == "manifests" {
                            open.push(String::from_utf8(body).unwrap());
                        }
                    }
                    None => return None,
                    Some((status, _)) => drop(hole.get_or_insert(format!("{path}: {status}"))),
                }
            }
        }
        hole
    }

    fn pull_on(&self, seed: u64) {
        let mut dice = Dice(seed);
        while !self.ended.load(Ordering::SeqCst) {
            let Some((repository, digest, text)) = self.pick(&mut dice) else { continue };
            let hole = self.hole(&mut dice, repository, &text);
            // Only what somebody has begun to delete may have one.
            assert!(hole.is_none() || !self.is_kept(repository, &digest), "{repository} {digest}: {hole:?}");
            self.seen.pulled.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn delete(&self, dice: &mut Dice) {
        let Some((repository, digest, _)) = self.pick(dice) else { return };
        self.acknowledged.lock().unwrap().remove(&(repository, digest.clone()));
        self.delete_one(dice, repository, &digest);
        self.seen.deleted.fetch_add(1, Ordering::SeqCst);
    }

    fn delete_one(&self, dice: &mut Dice, repository: &str, digest: &str) {
        let path = format!("{repository}/manifests/{digest}");
        let mut status = None;
        while status.is_none() {
            status = self.status(dice, "DELETE", &path);
        }
        // 404: a server was killed after it had done so, or before it had stored a stray.
        assert!(matches!(status, Some(202 | 404)), "{path}: {status:?}");
    }

    fn delete_on(&self, seed: u64) {
        let mut dice = Dice(seed);
        while !self.ended.load(Ordering::SeqCst) {
            if self.acknowledged.lock().unwrap().len() > 12 {
                self.delete(&mut dice);
            }
            std::thread::sleep(Duration::from_millis(dice.roll(120) as u64));
        }
    }

    /// Every blob that something acknowledged needs, manifests included.
    fn needed(&self) -> BTreeSet<String> {
        let mut needed = BTreeSet::new();
        let mut open: Vec<(&str, String)> = {
            let acknowledged = self.acknowledged.lock().unwrap();
            acknowledged.iter().map(|((repository, _), text)| (*repository, text.clone())).collect()
        };
        while let Some((repository, text)) = open.pop() {
            needed.insert(sha256(text.as_bytes()));
            let manifest: Value = serde_json::from_str(&text).unwrap();
            for layer in manifest["layers"].as_array().into_iter().flatten() {
                needed.insert(layer["digest"].as_str().unwrap().to_owned());
            }
            for child in manifest["manifests"].as_array().into_iter().flatten() {
                let path = format!("/v2/{repository}/manifests/{}", child["digest"].as_str().unwrap());
                open.push((repository, String::from_utf8(get(&self.servers[0], &path).body).unwrap()));
            }
        }
        needed
    }
}

/// The names of all blobs in the bucket.
fn stored(bucket: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for shard in std::fs::read_dir(bucket).into_iter().flatten().flatten() {
        for file in std::fs::read_dir(shard.path()).into_iter().flatten().flatten() {
            found.insert(format!("sha256:{}", file.file_name().to_str().unwrap()));
        }
    }
    found
}

#[test]
fn nothing_that_was_acknowledged_goes_and_nothing_else_stays_while_a_server_is_killed_over_its_collection() {
    let grace = format!("{}s", GRACE.as_secs());
    let Some(mut scene) = Scene::with(&["--gc-interval", "1s", "--gc-grace", &grace]) else { return };
    let clients = Clients {
        servers: [scene.address(0), scene.address(1)],
        stock: (1..80).map(|seed| noise(500 * (seed as usize % 16 + 1), seed)).collect(),
        acknowledged: Mutex::default(),
        strays: Mutex::default(),
        seen: Seen::default(),
        ended: AtomicBool::new(false),
        count: AtomicU64::new(0),
    };
    let mut killed_over_it = 0;
    std::thread::scope(|scope| {
        for seed in [11, 22, 33] {
            let clients = &clients;
            scope.spawn(move || ending(clients, || clients.push_on(seed)));
        }
        scope.spawn(|| ending(&clients, || clients.pull_on(44)));
        scope.spawn(|| ending(&clients, || clients.delete_on(55)));
        let (began, mut dice) = (Instant::now(), Dice(66));
        let taken = |scene: &Scene| scene.ask("SELECT count(*) FROM condemned WHERE taken_by IS NOT NULL") != "0";
        while began.elapsed() < BUSY && !clients.ended.load(Ordering::SeqCst) {
            if began.elapsed() < GRACE || killed_over_it > 1 || !taken(&scene) {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let which = dice.roll(2);
            scene.kill(which);
            std::thread::sleep(Duration::from_secs(2));
            // The other one, if it was collecting, is through by now.
            killed_over_it += u64::from(taken(&scene));
            scene.start(which);
        }
        clients.ended.store(true, Ordering::SeqCst);
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let seen = &clients.seen;
    let counts = [&seen.pushed, &seen.pulled, &seen.deleted, &seen.mounted, &seen.again, &seen.too_slow].map(count);
    println!(
        "pushed, pulled, deleted, mounted, again, too slow: {counts:?}; killed over a collection: {killed_over_it}"
    );
    assert!(counts[..4].iter().all(|count| *count > 10), "{counts:?}");
    assert!(killed_over_it > 0, "no server was killed over what it collected");

    let mut dice = Dice(77);
    let half = clients.acknowledged.lock().unwrap().len() / 2;
    for _ in 0..half {
        clients.delete(&mut dice);
    }
    for (repository, digest) in clients.strays.lock().unwrap().iter() {
        clients.delete_one(&mut dice, repository, digest);
    }
    let (needed, bucket) = (clients.needed(), scene.objects.file("blobs/sha256"));
    let began = Instant::now();
    loop {
        let stored = stored(&bucket);
        let lost: Vec<_> = needed.difference(&stored).collect();
        assert!(lost.is_empty(), "{lost:?} are needed and gone");
        let left: Vec<_> = stored.difference(&needed).collect();
        if left.is_empty() {
            break;
        }
        assert!(began.elapsed() < GONE_WITHIN, "{} blobs that nothing names are there: {left:?}", left.len());
        std::thread::sleep(Duration::from_millis(500));
    }
    println!("everything else was gone after {:?}", began.elapsed());
    // Servers that have nothing but the bucket give everything that was acknowledged.
    for which in [0, 1] {
        scene.kill(which);
        scene.forget(which);
        scene.start(which);
    }
    for ((repository, digest), text) in clients.acknowledged.lock().unwrap().iter() {
        assert_eq!(clients.hole(&mut dice, repository, text), None, "{repository} {digest}");
    }
    assert_eq!(stored(&bucket), needed);
}

/// Ends the others too where one fails.
fn ending(clients: &Clients, work: impl FnOnce()) {
    struct End<'c>(&'c Clients);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.ended.store(true, Ordering::SeqCst);
            }
        }
    }
    let _end = End(clients);
    work();
}

#[test]
fn what_was_taken_down_goes_from_the_bucket_and_gc_beside_the_servers_takes_it() {
    let Some(scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let digest = publish(scene.root.path(), &one, "team/app", 1);
    let kept = publish(scene.root.path(), &two, "team/app", 2);
    let bucket = scene.objects.file("blobs/sha256");
    let before = stored(&bucket);
    scene.store(&["takedown", &digest, "--reason", "a test"]).ok();
    for address in [&one, &two] {
        wait_until("it is out of sight", || get(address, &format!("/v2/team/app/manifests/{digest}")).status == 404);
    }
    let collect = || scene.store(&["gc", "--grace", "1s", "--json"]).ok().json();
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    while stored(&bucket).contains(&digest) {
        assert!(began.elapsed() < Duration::from_secs(90), "it is there still");
        collect();
    }
    let after = stored(&bucket);
    assert!(after.contains(&kept) && after.len() < before.len(), "{} of {}", after.len(), before.len());
    for address in [&one, &two] {
        assert_eq!(ask(address, &format!("/v2/team/app/manifests/{kept}"), &["--head"]).status, 200);
    }
    // Nothing is left to do.
    collect();
    assert_eq!(collect()["blobs"], 0);
    assert_eq!(stored(&bucket), after);
}

#[test]
fn uploads_that_were_abandoned_go_from_the_bucket() {
    let Some(scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let address = scene.address(0);
    let begin = || {
        let begun =
            ask(&address, "/v2/team/app/blobs/uploads/", &["--request", "POST", "--header", "content-length: 0"]);
        assert_eq!(begun.status, 202, "{begun:?}");
        let at = begun.header("location")[0].to_owned();
        let path = at.trim_start_matches("/v2/").to_owned();
        assert_eq!(request(&address, "PATCH", &path, "application/octet-stream", b"some").map(|it| it.0), Some(202));
        at.rsplit_once('/').unwrap().1.to_owned()
    };
    let (old, young) = (begin(), begin());
    let folder = |session: &str| scene.objects.file(&format!("uploads/{session}"));
    let parts = |session: &str| std::fs::read_dir(folder(session)).map_or(0, |parts| parts.count());
    assert_eq!((parts(&old), parts(&young)), (1, 1));
    for part in std::fs::read_dir(folder(&old)).unwrap() {
        let file = std::fs::File::open(part.unwrap().path()).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(25 * 3600)).unwrap();
    }
    let collected = scene.store(&["gc", "--grace", "1s", "--json"]).ok().json();
    assert_eq!(collected["sessions"], 1, "{collected}");
    assert_eq!((parts(&old), parts(&young)), (0, 1));
}

#[test]
fn a_tag_of_what_was_taken_down_is_set_anew_only_when_nobody_is_removing_it() {
    let Some(scene) = Scene::with(&["--gc-interval", "0s"]) else { return };
    let (one, two) = (scene.address(0), scene.address(1));
    let digest = publish(scene.root.path(), &one, "team/app", 1);
    let other = publish(scene.root.path(), &two, "team/app", 2);
    scene.store(&["takedown", &digest, "--reason", "a test"]).ok();
    wait_until("it is out of sight", || get(&two, "/v2/team/app/manifests/1").status == 404);
    let manifest = get(&two, &format!("/v2/team/app/manifests/{other}"));
    assert_eq!(manifest.status, 200);
    let media_type = manifest.header("content-type")[0].to_owned();
    let set = |tag: &str| request(&two, "PUT", &format!("team/app/manifests/{tag}"), &media_type, &manifest.body);
    // A server that removes what was taken down has it taken, with the tag that led to it.
    let taken = format!("'{digest}', 'team/app', 0, gen_random_uuid()");
    scene.ask(&format!("INSERT INTO condemned (digest, repository, bytes, taken_by) VALUES ({taken})"));
    assert_eq!(set("3").map(|it| it.0), Some(201), "another tag has nothing to do with it");
    assert_eq!(set("1").map(|it| it.0), Some(503), "it may be removed at any moment");
    scene.ask(&format!("DELETE FROM condemned WHERE digest = '{digest}'"));
    assert_eq!(set("1").map(|it| it.0), Some(201));
    std::thread::sleep(Duration::from_secs(2));
    scene.store(&["gc", "--grace", "1s"]).ok();
    for address in [&one, &two] {
        wait_until("the tag leads to the other", || {
            get(address, "/v2/team/app/manifests/1").header("docker-content-digest") == [other.as_str()]
        });
    }
}

#[test]
fn a_bucket_of_servers_without_a_database_in_common_is_not_collected_and_says_why() {
    let Some(objects) = ObjectServer::start() else { return };
    let root = tempfile::tempdir().unwrap();
    let mut gc = command("symseal");
    gc.args(["store", "gc", "--blobs", &objects.url(), "--data"]).arg(root.path()).envs(objects.environment());
    Ran::from(gc.output().unwrap()).refused(2, &["share a PostgreSQL", "no server knows what another one has told"]);
}
