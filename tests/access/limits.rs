//! Who asks for too much waits, or is told when to come again.

use std::time::{Duration, Instant};

use crate::program::{RunningServer, symseal};

#[test]
fn debuggers_wait_where_others_are_told_when_to_come_again() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("server.toml");
    std::fs::write(&file, "[limits]\nrequests_per_second = 4\nburst = 2\n").unwrap();
    let data = root.path().join("data");
    let server = RunningServer::start_with(&data, &["--config", file.to_str().unwrap()]);
    let get = |path: &str| crate::curl::curl([format!("http://{}{path}", server.address).as_str()]);
    let Some(first) = get("/v2/a/tags/list") else { return };
    assert_eq!(first.status, 404);
    let mut refused = 0;
    for _ in 0..10 {
        let answer = get("/v2/a/tags/list").unwrap();
        if answer.status == 429 {
            assert_eq!(answer.header("retry-after"), ["1"]);
            assert_eq!(answer.json()["errors"][0]["code"], "TOOMANYREQUESTS");
            refused += 1;
        }
    }
    assert!(refused > 0);
    let began = Instant::now();
    for _ in 0..6 {
        assert_eq!(get("/buildid/abcd/debuginfo").unwrap().status, 404);
    }
    // Six at four a second, two of them at once.
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    let metrics = get("/metrics");
    let text = String::from_utf8(metrics.unwrap().body).unwrap();
    if let Some(line) = text.lines().find(|line| line.starts_with("symseal_requests_limited_total ")) {
        assert_eq!(line, format!("symseal_requests_limited_total {refused}"));
    }
}

#[test]
fn a_configuration_is_checked_without_starting_a_server() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("server.toml");
    let data = root.path().join("data");
    let check = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let fixed = ["serve", "--check-config", "--data", data.to_str().unwrap(), "--config", file.to_str().unwrap()];
        symseal(fixed.iter().chain(more))
    };
    let sound = check("listen = '0.0.0.0:1'\n[access]\nmode = 'tokens'\nanonymous_read = ['public']\n", &[]).ok();
    assert!(sound.stdout.contains("tokens are asked for, but to read public"), "{}", sound.stdout);
    assert!(!data.exists(), "nothing was made");
    check("", &["--listen", "0.0.0.0:1"]).refused(2, &["access.mode", "0.0.0.0:1", "tokens", "open"]);
    check("[access]\nmood = 'open'\n", &[]).refused(2, &["server.toml", "line 2", "mood"]);
    check("", &["--access", "open", "--listen", "0.0.0.0:1"]).ok();
    check("", &["--access", "shut"]).refused(2, &["shut"]);
    // What a start would end with.
    let nowhere = ["/nonexistent"];
    check("[tls]\ncertificate = '/nonexistent'\nkey = '/nonexistent'\n", &[]).refused(2, &nowhere);
    check("[seals]\ntrust = '/nonexistent'\n", &[]).refused(2, &nowhere);
    check("[origins]\nindex = ['/nonexistent']\n", &[]).refused(2, &nowhere);
    check("[origins]\nsource_roots = ['/nonexistent']\n", &[]).refused(2, &nowhere);
    check("[origins]\nupstreams = ['ftp://x']\n", &[]).refused(2, &["ftp://x", "http://HOST"]);
    check("", &["--symbol-upstream", "ftp://x"]).refused(2, &["ftp://x"]);
    // Of what nobody judges nothing would ever be shown.
    check("[seals]\nrequire_seal = ['all']\n", &[]).refused(2, &["seals.require_seal", "seals.trust"]);
    // What a start would go on with, and not as it is meant.
    let warned = check("[gc]\ngrace = '0s'\n", &[]).ok();
    assert!(warned.stderr.contains("gc.grace") && warned.stderr.contains("24h"), "{}", warned.stderr);
    assert!(check("[gc]\ngrace = '0s'\ninterval = '0s'\n", &[]).ok().stderr.is_empty(), "nothing is collected");
    let warned = check("blobs = 's3://bucket'\n", &[]).ok();
    assert!(warned.stderr.contains("NOT collected") && warned.stderr.contains("PostgreSQL"), "{}", warned.stderr);
    let warned = check("", &["--source-root", "/"]).ok();
    assert!(warned.stderr.contains("/etc") && warned.stderr.contains("name the directories"), "{}", warned.stderr);
    assert!(check("", &["--source-root", root.path().to_str().unwrap()]).ok().stderr.is_empty());
    let warned = check("", &["--database", "postgres://u:hunter2@db.example/x?sslmode=prefer"]).ok();
    assert!(
        warned.stderr.contains("without TLS (sslmode=prefer)") && !warned.stderr.contains("hunter2"),
        "{}",
        warned.stderr
    );
    assert!(check("", &["--database", "postgres://u:p@db.example/x?sslmode=verify-full"]).ok().stderr.is_empty());
    check("", &["--database", "postgres://u:hunter2@db.example/x?ssl_mode=verify-full"])
        .refused(2, &["unknown parameter ssl_mode"]);
    // As a file of variables leaves one that has no value.
    let mut empty = crate::program::command("symseal");
    let empty = empty.args(["serve", "--check-config"]).env("SYMSEAL_SERVER_DATA", "").output().unwrap();
    crate::program::Ran::from(empty).refused(2, &["data", "empty"]);
    symseal(["serve", "--check-config", "--config", "/nonexistent.toml"]).refused(2, &["/nonexistent.toml"]);
}

#[test]
fn a_start_warns_of_a_database_without_tls_and_refuses_a_filter_of_the_log_that_is_none() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let serve = |database: &str, filter: &str| {
        let mut command = crate::program::command("symseal");
        command.args(["serve", "--listen", "127.0.0.1:0", "--database", database, "--data"]).arg(&data);
        crate::program::Ran::from(command.env("SYMSEAL_LOG", filter).output().unwrap())
    };
    let failed =
        serve("postgres://u:hunter2@db.invalid/x?sslmode=prefer", "warn").refused(2, &["without TLS (sslmode=prefer)"]);
    assert!(!failed.stderr.contains("hunter2"), "{}", failed.stderr);
    serve("postgres://u:hunter2@db.invalid/x", "nonsense").refused(2, &["SYMSEAL_LOG", "nonsense", "PART=LEVEL"]);
}

#[test]
fn the_configuration_to_begin_with_is_sound() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/release-jobs/deploy/server.toml");
    let sound = symseal(["serve", "--check-config", "--config", file]).ok();
    assert!(sound.stdout.contains("/var/lib/symseal on http://0.0.0.0:8790; tokens are asked for"), "{}", sound.stdout);
}

#[test]
fn a_server_that_starts_with_all_of_the_machine_as_sources_says_what_that_means() {
    let root = tempfile::tempdir().unwrap();
    let log = root.path().join("log");
    let mut child = crate::program::command("symseal")
        .args(["serve", "--listen", "127.0.0.1:0", "--source-root", "/", "--data"])
        .arg(root.path().join("data"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let told = std::fs::read_to_string(&log).unwrap();
    assert!(told.contains("WARN") && told.contains("/etc, ") && told.contains("origins.source_roots"), "{told}");
}

#[test]
fn a_request_has_an_id_and_no_log_has_a_token() {
    use std::process::Stdio;
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let token = crate::scene::token(&data, &["--read", "*"]);
    let log = root.path().join("log");
    let mut child = crate::program::command("symseal")
        .args(["serve", "--listen", "127.0.0.1:0", "--access", "tokens", "--log-format", "json", "--data"])
        .arg(&data)
        .env("SYMSEAL_LOG", "trace")
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let base = line.rsplit("http://").next().unwrap().trim();
    let bearer = format!("Authorization: Bearer {token}");
    let (path, ready) = (format!("http://{base}/t/{token}/buildid/ab/debuginfo"), format!("http://{base}/readyz"));
    let asked = crate::curl::curl(["--header", "X-Request-Id: mine-1", "--header", &bearer, &path]);
    let readiness = crate::curl::curl([ready.as_str()]);
    let _ = child.kill();
    let _ = child.wait();
    let (Some(asked), Some(readiness)) = (asked, readiness) else { return };
    assert_eq!((asked.status, asked.header("x-request-id")), (404, vec!["mine-1"]));
    assert_eq!((readiness.status, readiness.header("x-request-id").len()), (200, 1));
    let text = std::fs::read_to_string(&log).unwrap();
    let secret = token.strip_prefix("symseal_").unwrap();
    assert!(!text.contains(secret), "a token is in the log");
    let lines = text.lines().filter(|line| line.contains("mine-1") && line.contains("answered"));
    let lines: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert_eq!(lines[0]["status"], 404);
    assert_eq!(lines[0]["span"]["path"], "/buildid/ab/debuginfo");
    assert!(lines[0]["token"].as_str().is_some_and(|id| id.len() == 12));
}
