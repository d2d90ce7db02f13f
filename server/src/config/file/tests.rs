//! Configuration files and variables, as they are read.

use std::io::Write as _;

use super::*;

const LOOPBACK: &str = "127.0.0.1:8790";

fn load(text: &str, environment: &[(&str, &str)]) -> Result<ConfigFile, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ConfigFile::load(Some(file.path()), environment)
}

fn config(file: &ConfigFile, listen: &str) -> Result<Config, ConfigError> {
    file.config("data".into(), listen.parse().unwrap())
}

#[test]
fn every_setting_is_read() {
    let text = r#"
        data = "/var/lib/symseal"
        listen = "0.0.0.0:443"
        public_url = "https://symbols.example.org/"
        [access]
        mode = "tokens"
        anonymous_read = ["public", "team/open"]
        [tls]
        certificate = "/etc/c.pem"
        key = "/etc/k.pem"
        [limits]
        requests_per_second = 50
        burst = 200
        upload = "8GiB"
        read_per_hour = "20GiB"
        write_per_hour = 1048576
        [[quotas]]
        prefix = "team"
        bytes = "50GiB"
        bundles = 200
        [[quotas]]
        prefix = "*"
        bytes = 1099511627776
        [[retention]]
        prefix = "team"
        channel = "nightly"
        keep_last = 10
        keep_younger = "30d"
        keep_at_least = 3
        [log]
        enabled = true
        key = "/safe/log.pem"
        [gc]
        interval = "30m"
        grace = "2d"
        [seals]
        trust = "/etc/trust"
        require_seal = ["prod"]
        [origins]
        upstreams = ["https://debuginfod.debian.net"]
        cache_mib = 512
    "#;
    let file = load(text, &[]).unwrap();
    assert_eq!(file.gc_interval(), Some(Duration::from_secs(1800)));
    assert_eq!(file.gc_grace(), Some(Duration::from_secs(172_800)));
    assert_eq!(file.log.enabled, Some(true));
    let config = config(&file, "0.0.0.0:443").unwrap();
    assert_eq!(config.public_url.as_deref(), Some("https://symbols.example.org"));
    let AccessConfig::Tokens { anonymous_read } = config.access else { panic!("open") };
    assert_eq!(anonymous_read.len(), 2);
    assert!(config.cors, "what strangers may read, pages may read");
    assert_eq!(config.limits.burst, Some(200));
    let quotas = config.quotas.iter().map(|quota| (quota.prefix.to_string(), quota.bytes, quota.bundles));
    let expected = [("team".to_owned(), Some(50 << 30), Some(200)), ("*".to_owned(), Some(1 << 40), None)];
    assert_eq!(quotas.collect::<Vec<_>>(), expected);
    let rule = &config.retention[0];
    assert_eq!((rule.channel.as_deref(), rule.keep_last, rule.keep_at_least), (Some("nightly"), Some(10), Some(3)));
    assert_eq!(rule.keep_younger, Some(Duration::from_secs(30 * 86_400)));
    assert_eq!(config.limits.upload, Some(8 << 30));
    assert_eq!((config.limits.read_per_hour, config.limits.write_per_hour), (Some(20 << 30), Some(1 << 20)));
    assert_eq!(config.tls.unwrap().key, PathBuf::from("/etc/k.pem"));
}

#[test]
fn the_environment_says_more_than_the_file() {
    let environment = [
        ("SYMSEAL_SERVER_ACCESS__MODE", "tokens"),
        ("SYMSEAL_SERVER_ACCESS__ANONYMOUS_READ", r#"["public"]"#),
        ("SYMSEAL_SERVER_LIMITS__REQUESTS_PER_SECOND", "5.5"),
        ("SYMSEAL_SERVER_DATA", "/data"),
        ("SYMSEAL_LOG", "debug"),
    ];
    let file = load("data = '/other'\n[access]\nmode = 'open'", &environment).unwrap();
    assert_eq!(file.data, Some(PathBuf::from("/data")));
    for name in ["2026", "true", "[]"] {
        let file = load("", &[("SYMSEAL_SERVER_DATA", name)]).unwrap();
        assert_eq!(file.data, Some(PathBuf::from(name)));
    }
    let config = config(&file, "0.0.0.0:1").unwrap();
    assert!(matches!(config.access, AccessConfig::Tokens { .. }));
    assert_eq!(config.limits.requests_per_second, Some(5.5));
}

#[test]
fn a_public_url_is_one_that_paths_can_be_put_behind() {
    let problem = |url: &str| {
        let file = load(&format!("public_url = '{url}'"), &[]).unwrap();
        file.config("data".into(), ([127, 0, 0, 1], 0).into()).err().map(|error| error.to_string())
    };
    for url in ["https://a/b?c", "https://a/#c", "https://a/b?", "https://", "ftp://a/", "a.example", "http://[a/"] {
        assert!(problem(url).is_some_and(|problem| problem.contains("public_url")), "{url}: {:?}", problem(url));
    }
    for url in ["https://a/b/", "http://[::1]:8790", "https://symbols.example.org"] {
        assert_eq!(problem(url), None, "{url}");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (text, wanted) in [
        ("listen = 'here'", "line 1"),
        ("\n[acces]\n", "line 2"),
        ("[access]\nmode = 'closed'", "line 2"),
        ("[access]\nanonymous_read = ['../etc']", "expected"),
        ("[limits]\nupload = '8GB'", "512MiB"),
        ("[[quotas]]\nprefix = '../x'", "expected"),
        ("[[quotas]]\nbytes = 1", "prefix"),
        ("[gc]\ngrace = '24'", "24h"),
        ("[gc]\ngrace = '99999999999999999d'", "24h"),
        ("=", "line 1"),
    ] {
        let error = load(text, &[]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    for (name, value, wanted) in [
        ("SYMSEAL_SERVER_ACCESS__MODE", "closed", "SYMSEAL_SERVER_ACCESS__MODE"),
        ("SYMSEAL_SERVER_NOTHING", "1", "nothing"),
        ("SYMSEAL_SERVER_", "1", "path"),
    ] {
        let error = load("", &[(name, value)]).unwrap_err().to_string();
        assert!(error.contains(wanted), "{name}: {error}");
    }
}

#[test]
fn no_error_and_no_debug_output_shows_the_password_of_a_database() {
    for text in [
        "database = 'postgres://symseal:hunter2@db/symbols",
        "database = ['postgres://symseal:hunter2@db/symbols']",
        "databas = 'postgres://symseal:hunter2@db/symbols'",
        "database = 'postgres://symseal:hun@ter\\\"hunter2@db/symbols",
    ] {
        let error = load(text, &[]).unwrap_err().to_string();
        assert!(error.contains("line 1") && !error.contains("hunter2"), "{error}");
    }
    // What cannot hold one is shown, whatever blanks stand around it.
    for text in
        ["listen=\"nosuchhost.invalid:99999\"", "listen = \"nosuchhost.invalid:99999\"", "[[quotas]]\nprefix=\"Team!\""]
    {
        let error = load(text, &[]).unwrap_err().to_string();
        assert!(text.lines().last().is_some_and(|line| error.contains(line)), "{error}");
    }
    for wrong in ["mysql://symseal:hunter2@db/symbols", "postgres://symseal:hunter2@db:x/symbols"] {
        let file = load("", &[("SYMSEAL_SERVER_DATABASE", wrong)]).unwrap();
        let error = config(&file, LOOPBACK).unwrap_err().to_string();
        assert!(error.starts_with("database: expected postgres://") && !error.contains("hunter2"), "{error}");
    }
    let file = load("database = 'postgres://symseal:hunter2@db/symbols'", &[]).unwrap();
    let config = config(&file, LOOPBACK).unwrap();
    assert!(!format!("{file:?} {config:?}").contains("hunter2"));
    assert_eq!(config.database.unwrap().to_string(), "postgres://symseal@db:5432/symbols");
}

#[test]
fn an_open_server_that_others_reach_is_open_by_choice_alone() {
    let said_nothing = load("", &[]).unwrap();
    assert_eq!(config(&said_nothing, LOOPBACK).unwrap().access, AccessConfig::Open);
    assert!(config(&said_nothing, "0.0.0.0:1").is_err());
    let open = load("[access]\nmode = 'open'", &[]).unwrap();
    assert_eq!(config(&open, "0.0.0.0:1").unwrap().access, AccessConfig::Open);
    let contradiction = load("[access]\nanonymous_read = ['*']", &[]).unwrap();
    assert!(config(&contradiction, LOOPBACK).is_err());
    assert!(config(&load("[limits]\nrequests_per_second = 0", &[]).unwrap(), LOOPBACK).is_err());
    assert!(config(&load("[limits]\nrequests_per_second = 5\nburst = 0", &[]).unwrap(), LOOPBACK).is_err());
    assert!(config(&load("[[quotas]]\nprefix = 'team'", &[]).unwrap(), LOOPBACK).is_err());
    for keeps_nothing in ["", "keep_at_least = 3", "keep_last = 0", "keep_younger = '0d'"] {
        let rule = format!("[[retention]]\nprefix = 'team'\n{keeps_nothing}");
        assert!(config(&load(&rule, &[]).unwrap(), LOOPBACK).is_err(), "{rule}");
    }
    assert!(config(&load("[limits]\nread_per_hour = '0MiB'", &[]).unwrap(), LOOPBACK).is_err());
    assert!(config(&load("[seals]\ntrust = ''", &[]).unwrap(), LOOPBACK).is_err());
    let nowhere = ConfigFile::default().config(PathBuf::new(), LOOPBACK.parse().unwrap());
    assert!(nowhere.unwrap_err().to_string().contains("data: expected a directory"));
}
