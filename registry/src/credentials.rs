//! Where the credentials of a registry are found: the environment, then the files that `docker login`, `podman login` and `oras login`
//! write, and the helper programs that these name. Nothing is stored here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

use crate::Reference;
use crate::challenge::IDENTITY_TOKEN_USER;

/// The largest credential file that is read, in bytes.
const FILE_LIMIT: u64 = 4 << 20;

/// What the files of container tools call Docker Hub.
const DOCKER_HUB: [&str; 2] = ["docker.io", "index.docker.io"];

/// The registry that the next two variables are for.
const REGISTRY: &str = "SYMSEAL_REGISTRY";
const USER: &str = "SYMSEAL_REGISTRY_USER";
const PASSWORD: &str = "SYMSEAL_REGISTRY_PASSWORD";
/// A token for the registry, instead of user and password.
const TOKEN: &str = "SYMSEAL_REGISTRY_TOKEN";

/// Credentials that were found, and where.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// What is sent when the registry asks for it.
    pub auth: RegistryAuth,
    /// For people: `the environment`, a file, a helper; `nobody` where there are none.
    pub origin: String,
}

/// Why credentials cannot be read. An absence of credentials is no error.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Variables that do not belong together.
    #[error("{variable}: {problem}")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A file that cannot be read.
    #[error("the credentials in {path}: {problem}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A helper program that does not answer.
    #[error("the credential helper {program}, which {path} names for {registry}: {problem}", path = .path.display())]
    Helper {
        /// The program.
        program: String,
        /// The file that names it.
        path: PathBuf,
        /// The registry that it was asked for.
        registry: String,
        /// What went wrong.
        problem: String,
    },
}

/// Finds the credentials for a reference's registry:
///
/// 1. `SYMSEAL_REGISTRY_USER` and `SYMSEAL_REGISTRY_PASSWORD`, or `SYMSEAL_REGISTRY_TOKEN`, where `SYMSEAL_REGISTRY` is its
///    host: a password in the environment goes to the one registry that it is for.
/// 2. The first of these files that knows it: `$REGISTRY_AUTH_FILE`, `$DOCKER_CONFIG/config.json` (else
///    `~/.docker/config.json`), `$XDG_RUNTIME_DIR/containers/auth.json`.
///
/// # Errors
/// [`CredentialsError`] where there is something and it cannot be read.
pub fn find(reference: &Reference) -> Result<Credentials, CredentialsError> {
    find_in(reference, &|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

type Environment<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

fn find_in(reference: &Reference, environment: &Environment<'_>) -> Result<Credentials, CredentialsError> {
    if let Some(auth) = from_environment(reference.registry(), environment)? {
        return Ok(Credentials { auth, origin: "the environment".to_owned() });
    }
    for path in files(environment) {
        if let Some(auth) = from_file(reference, &path)? {
            return Ok(Credentials { auth, origin: path.display().to_string() });
        }
    }
    Ok(Credentials { auth: RegistryAuth::Anonymous, origin: "nobody".to_owned() })
}

fn from_environment(registry: &str, environment: &Environment<'_>) -> Result<Option<RegistryAuth>, CredentialsError> {
    let error = |variable, problem: &str| CredentialsError::Environment { variable, problem: problem.to_owned() };
    let text = |variable: &'static str| match environment(variable).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(error(variable, "expected UTF-8")),
    };
    let (token, user, password) = (text(TOKEN)?, text(USER)?, text(PASSWORD)?);
    if token.is_none() && user.is_none() && password.is_none() {
        return Ok(None);
    }
    let host = text(REGISTRY)?;
    let host = host.ok_or_else(|| {
        error(REGISTRY, "set it to the host[:port] that the credentials in the environment are for; no other gets them")
    })?;
    if host != registry {
        return Ok(None);
    }
    match (token, user, password) {
        (Some(token), None, None) => Ok(Some(RegistryAuth::Bearer(token))),
        (None, Some(user), Some(password)) => Ok(Some(RegistryAuth::Basic(user, password))),
        (Some(_), ..) => Err(error(TOKEN, "give either the token, or user and password")),
        (None, None, _) => Err(error(USER, "expected a user name beside the password")),
        (None, Some(_), None) => Err(error(PASSWORD, "expected a password beside the user name")),
    }
}

fn files(environment: &Environment<'_>) -> Vec<PathBuf> {
    let at = |variable: &str| environment(variable).map(PathBuf::from);
    let docker = at("DOCKER_CONFIG").or_else(|| Some(at("HOME")?.join(".docker")));
    let paths = [
        at("REGISTRY_AUTH_FILE"),
        docker.map(|dir| dir.join("config.json")),
        at("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json")),
    ];
    paths.into_iter().flatten().filter(|path| path.exists()).collect()
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    /// base64 of `user:password`.
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

fn from_file(reference: &Reference, path: &Path) -> Result<Option<RegistryAuth>, CredentialsError> {
    let error = |problem: String| CredentialsError::File { path: path.to_owned(), problem };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|source| error(source.to_string()))?;
    file.take(FILE_LIMIT).read_to_end(&mut bytes).map_err(|source| error(source.to_string()))?;
    // The parser's own words would repeat a piece of the file.
    let config: Config = serde_json::from_slice(&bytes).map_err(|source| {
        error(format!("not JSON of the expected form, at line {}, column {}", source.line(), source.column()))
    })?;
    let registry = reference.registry();
    let helper = config.cred_helpers.iter().find(|(key, _)| host_of(key) == registry).map(|(_, helper)| helper);
    if let Some(helper) = helper {
        return ask_helper(helper, registry, path);
    }
    if let Some(entry) = entry_of(&config, reference)
        && let Some(auth) = entry.auth().map_err(error)?
    {
        return Ok(Some(auth));
    }
    match &config.creds_store {
        Some(helper) => ask_helper(helper, registry, path),
        None => Ok(None),
    }
}

/// The entry for the longest path that leads to the repository: podman's files may have one for each.
fn entry_of<'c>(config: &'c Config, reference: &Reference) -> Option<&'c Entry> {
    let whole = format!("{}/{}", reference.registry(), reference.repository());
    let mut at = whole.as_str();
    loop {
        let found = config.auths.iter().find(|(key, _)| path_of(key) == at);
        match (found, at.rsplit_once('/')) {
            (Some((_, entry)), _) => return Some(entry),
            (None, Some((shorter, _))) => at = shorter,
            (None, None) => break,
        }
    }
    config.auths.iter().find(|(key, _)| is_same_host(host_of(key), reference.registry())).map(|(_, entry)| entry)
}

fn is_same_host(one: &str, other: &str) -> bool {
    one == other || DOCKER_HUB.contains(&one) && (DOCKER_HUB.contains(&other) || other == "registry-1.docker.io")
}

/// A key without its scheme and last slash: old files have URLs.
fn path_of(key: &str) -> &str {
    key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/')
}

/// The host of a key that names a whole registry: `host`, `https://host/v1/`. A key with another path is for that path alone.
fn host_of(key: &str) -> &str {
    let path = path_of(key);
    match path.split_once('/') {
        None | Some((_, "v1" | "v2")) => path.split('/').next().unwrap_or(path),
        Some(_) => "",
    }
}

impl Entry {
    fn auth(&self) -> Result<Option<RegistryAuth>, String> {
        use base64::Engine as _;
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = given(&self.registrytoken) {
            return Ok(Some(RegistryAuth::Bearer(token)));
        }
        if let Some(token) = given(&self.identitytoken) {
            return Ok(Some(RegistryAuth::Basic(IDENTITY_TOKEN_USER.to_owned(), token)));
        }
        if let (Some(user), Some(password)) = (given(&self.username), given(&self.password)) {
            return Ok(Some(RegistryAuth::Basic(user, password)));
        }
        let Some(auth) = given(&self.auth) else { return Ok(None) };
        let decoded = base64::engine::general_purpose::STANDARD.decode(auth.trim()).ok();
        let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = text.as_deref().and_then(|text| text.split_once(':'));
        let (user, password) = pair.ok_or("an entry's auth is not base64 of user:password; log in again")?;
        Ok(Some(RegistryAuth::Basic(user.to_owned(), password.trim_end_matches('\0').to_owned())))
    }
}

/// Asks `docker-credential-NAME get`; `None` where it knows no credentials for the registry.
fn ask_helper(name: &str, registry: &str, path: &Path) -> Result<Option<RegistryAuth>, CredentialsError> {
    let program = format!("docker-credential-{name}");
    let error = |problem: String| CredentialsError::Helper {
        program: program.chars().take(80).collect(),
        path: path.to_owned(),
        registry: registry.to_owned(),
        problem,
    };
    // The name comes from a file; it must not lead out of PATH.
    let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(error("expected a name of letters, digits, dots, dashes and underscores".to_owned()));
    }
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| error(format!("it cannot be run: {source}")))?;
    let hub = DOCKER_HUB.contains(&registry) || registry == "registry-1.docker.io";
    let asked = if hub { "https://index.docker.io/v1/" } else { registry };
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that ends without reading says so by its status.
        let _ = stdin.write_all(asked.as_bytes());
    }
    let output = child.wait_with_output().map_err(|source| error(source.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout).trim().chars().take(200).collect::<String>();
        return match said.contains("credentials not found") {
            true => Ok(None),
            false => Err(error(format!("{}: {said}", output.status))),
        };
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        username: String,
        secret: String,
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)
        .map_err(|_| error("expected JSON with Username and Secret, found something else".to_owned()))?;
    Ok(Some(RegistryAuth::Basic(answer.username, answer.secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    fn reference(text: &str) -> Reference {
        Reference::parse(text).unwrap()
    }

    fn basic(user: &str, password: &str) -> RegistryAuth {
        RegistryAuth::Basic(user.into(), password.into())
    }

    #[test]
    fn a_password_in_the_environment_goes_to_the_one_registry_that_it_is_for() {
        let one = variables(&[
            ("SYMSEAL_REGISTRY", "r.example:5000"),
            ("SYMSEAL_REGISTRY_USER", "robot"),
            ("SYMSEAL_REGISTRY_PASSWORD", "a:b"),
        ]);
        assert_eq!(find_in(&reference("r.example:5000/a"), &one).unwrap().auth, basic("robot", "a:b"));
        for other in ["r.example/a", "other.example/a", "localhost/a"] {
            assert_eq!(find_in(&reference(other), &one).unwrap().auth, RegistryAuth::Anonymous, "{other}");
        }
        let token = variables(&[("SYMSEAL_REGISTRY", "r.example"), ("SYMSEAL_REGISTRY_TOKEN", "t")]);
        assert_eq!(find_in(&reference("r.example/a"), &token).unwrap().auth, RegistryAuth::Bearer("t".into()));
    }

    #[test]
    fn half_a_pair_in_the_environment_is_told_by_the_missing_variable() {
        let cases: [(&'static [(&str, &str)], &str); 4] = [
            (&[("SYMSEAL_REGISTRY_USER", "u"), ("SYMSEAL_REGISTRY_PASSWORD", "p")], "SYMSEAL_REGISTRY:"),
            (&[("SYMSEAL_REGISTRY", "r.example"), ("SYMSEAL_REGISTRY_USER", "u")], "SYMSEAL_REGISTRY_PASSWORD:"),
            (&[("SYMSEAL_REGISTRY", "r.example"), ("SYMSEAL_REGISTRY_PASSWORD", "u")], "SYMSEAL_REGISTRY_USER:"),
            (
                &[("SYMSEAL_REGISTRY", "r.example"), ("SYMSEAL_REGISTRY_USER", "u"), ("SYMSEAL_REGISTRY_TOKEN", "t")],
                "SYMSEAL_REGISTRY_TOKEN:",
            ),
        ];
        for (pairs, named) in cases {
            let error = find_in(&reference("r.example/a"), &variables(pairs)).unwrap_err().to_string();
            assert!(error.starts_with(named), "{error}");
        }
    }

    #[track_caller]
    fn check_file(json: &str, place: &str, expected: RegistryAuth) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), json).unwrap();
        let environment = |name: &str| (name == "DOCKER_CONFIG").then(|| dir.path().into());
        assert_eq!(find_in(&reference(place), &environment).unwrap().auth, expected, "{place} in {json}");
    }

    #[test]
    fn the_file_of_docker_login_is_read_in_its_old_and_new_forms() {
        // printf user:pa:ss | base64
        let auth = "dXNlcjpwYTpzcw==";
        for key in
            ["r.example:5000", "https://r.example:5000", "http://r.example:5000/v1/", "https://r.example:5000/v2/"]
        {
            let json = format!(r#"{{"auths":{{"{key}":{{"auth":"{auth}"}}}},"HttpHeaders":{{"a":"b"}}}}"#);
            check_file(&json, "r.example:5000/a/b", basic("user", "pa:ss"));
            check_file(&json, "r.example/a/b", RegistryAuth::Anonymous);
        }
        let hub = format!(r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{auth}"}}}}}}"#);
        check_file(&hub, "docker.io/library/a", basic("user", "pa:ss"));
        let token = r#"{"auths":{"r.example":{"auth":"AAAA","identitytoken":"tok"}}}"#;
        check_file(token, "r.example/a", basic("<token>", "tok"));
        let podman = r#"{"auths":{"r.example/team/app":{"username":"a","password":"1"},"r.example/team":{"username":"b","password":"2"}}}"#;
        check_file(podman, "r.example/team/app:1", basic("a", "1"));
        check_file(podman, "r.example/team/other", basic("b", "2"));
        check_file(podman, "r.example/elsewhere", RegistryAuth::Anonymous);
        check_file("{}", "r.example/a", RegistryAuth::Anonymous);
        check_file(r#"{"auths":{"r.example":{}}}"#, "r.example/a", RegistryAuth::Anonymous);
    }

    #[test]
    fn a_damaged_file_is_named_and_its_content_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.json");
        let environment = |name: &str| (name == "REGISTRY_AUTH_FILE").then(|| path.clone().into());
        for json in [r#"{"auths":{"r.example":{"auth":"!secret"}}}"#, r#"{"auths":"secret"}"#, "secret"] {
            std::fs::write(&path, json).unwrap();
            let error = find_in(&reference("r.example/a"), &environment).unwrap_err().to_string();
            assert!(error.contains("auth.json") && !error.contains("secret"), "{error}");
        }
        std::fs::write(&path, r#"{"credsStore":"../../tmp/evil"}"#).unwrap();
        let error = find_in(&reference("r.example/a"), &environment).unwrap_err().to_string();
        assert!(error.contains("expected a name of letters"), "{error}");
        std::fs::write(&path, r#"{"credHelpers":{"r.example":"not-installed-here"}}"#).unwrap();
        let error = find_in(&reference("r.example/a"), &environment).unwrap_err().to_string();
        assert!(error.contains("docker-credential-not-installed-here") && error.contains("cannot be run"), "{error}");
        assert_eq!(find_in(&reference("other.example/a"), &environment).unwrap().auth, RegistryAuth::Anonymous);
    }
}
