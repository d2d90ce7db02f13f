//! Signers of every kind: keys that OpenSSL encrypted, a program, a token; and what is refused.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::have;
use symseal_sealer::keys::{DecryptError, KeyFileError};
use symseal_sealer::signer::{ProgramSigner, SignError};
use symseal_sealer::{
    ArtifactKey, KeySource, LogKey, OpenSignerError, Passphrase, PassphraseError, Signer, no_passphrase, sign_verified,
};

/// A directory with a P-256 key that OpenSSL made: `plain.pem`, and `public.pem`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Option<Self> {
        if !have("openssl", "version") {
            return None;
        }
        let place = Self(tempfile::tempdir().unwrap());
        place.openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "plain.pem"]);
        place.openssl(&["pkey", "-in", "plain.pem", "-pubout", "-out", "public.pem"]);
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    #[track_caller]
    fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl").current_dir(self.0.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Whether OpenSSL verifies the signature by `public.pem`.
    fn openssl_verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        std::fs::write(self.path("message"), message).unwrap();
        std::fs::write(self.path("signature"), signature).unwrap();
        let arguments = ["dgst", "-sha256", "-verify", "public.pem", "-signature", "signature", "message"];
        Command::new("openssl").current_dir(self.0.path()).args(arguments).output().unwrap().status.success()
    }
}

fn passphrase(text: &str) -> impl Fn(&str) -> Result<Passphrase, PassphraseError> + '_ {
    move |_| Ok(Passphrase::new(text.as_bytes().to_vec()))
}

#[test]
fn keys_that_openssl_encrypted_are_read() {
    let Some(place) = Place::new() else { return };
    let plain = ArtifactKey::load_pem(&place.path("plain.pem")).unwrap();
    for (name, options) in [
        ("default", ["-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA256"].as_slice()),
        ("aes128", &["-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA512", "-iter", "100000"]),
        ("scrypt", &["-scrypt"]),
        ("scrypt-big", &["-scrypt", "-scrypt_N", "16384", "-scrypt_r", "8", "-scrypt_p", "4"]),
    ] {
        let file = format!("{name}.pem");
        let mut arguments = vec!["pkcs8", "-topk8", "-in", "plain.pem", "-out", &file, "-passout", "pass:s\u{e9}same"];
        arguments.extend(options);
        place.openssl(&arguments);
        let key = ArtifactKey::load(&place.path(&file), &passphrase("s\u{e9}same")).unwrap();
        assert_eq!(key.key_id(), plain.key_id(), "{name}");
        let wrong = ArtifactKey::load(&place.path(&file), &passphrase("sesame")).unwrap_err();
        assert!(
            matches!(wrong, KeyFileError::Encrypted { source: DecryptError::WrongPassphrase, .. }),
            "{name}: {wrong}"
        );
        let none = ArtifactKey::load_pem(&place.path(&file)).unwrap_err();
        assert!(none.to_string().contains("the key is encrypted"), "{name}: {none}");
    }
}

#[test]
fn old_and_costly_encryption_is_refused_with_what_to_do() {
    let Some(place) = Place::new() else { return };
    let refused = |options: &[&str]| {
        let mut arguments = vec!["pkcs8", "-topk8", "-in", "plain.pem", "-out", "key.pem", "-passout", "pass:x"];
        arguments.extend(options);
        place.openssl(&arguments);
        let started = Instant::now();
        let error = ArtifactKey::load(&place.path("key.pem"), &passphrase("x")).unwrap_err().to_string();
        assert!(started.elapsed() < Duration::from_millis(500), "{options:?} took {:?}", started.elapsed());
        error
    };
    let error = refused(&["-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA1"]);
    assert!(error.contains("HMAC-SHA-1") && error.contains("openssl pkcs8"), "{error}");
    let error = refused(&["-v2", "des3"]);
    assert!(error.contains("PBES2"), "{error}");
    let error = refused(&["-v1", "PBE-SHA1-3DES"]);
    assert!(error.contains("PBES"), "{error}");
    let error = refused(&["-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA256", "-iter", "10000001"]);
    assert!(error.contains("10000001 iterations"), "{error}");
}

#[test]
fn openssl_reads_the_keys_that_we_encrypt() {
    let Some(place) = Place::new() else { return };
    let key = ArtifactKey::load_pem(&place.path("plain.pem")).unwrap();
    let secret = Passphrase::new(b"correct horse".to_vec());
    key.write_as(&place.path("ours.pem"), Some(&secret)).unwrap();
    assert!(std::fs::read_to_string(place.path("ours.pem")).unwrap().contains("BEGIN ENCRYPTED PRIVATE KEY"));
    place.openssl(&["pkey", "-in", "ours.pem", "-passin", "pass:correct horse", "-pubout", "-out", "ours.pub"]);
    assert_eq!(std::fs::read(place.path("ours.pub")).unwrap(), std::fs::read(place.path("public.pem")).unwrap());
    assert_eq!(
        ArtifactKey::load(&place.path("ours.pem"), &passphrase("correct horse")).unwrap().key_id(),
        key.key_id()
    );
    // Two files of one key have nothing in common but their frame.
    key.write_as(&place.path("again.pem"), Some(&secret)).unwrap();
    assert_ne!(std::fs::read(place.path("ours.pem")).unwrap(), std::fs::read(place.path("again.pem")).unwrap());

    let log = LogKey::generate().unwrap();
    log.write_as(&place.path("log.pem"), Some(&secret)).unwrap();
    place.openssl(&["pkey", "-in", "log.pem", "-passin", "pass:correct horse", "-out", "log-plain.pem"]);
    let origin = "log-1.symseal.internal".parse().unwrap();
    let identity = |key: LogKey| key.identity(&origin).unwrap();
    let read = LogKey::load(&place.path("log.pem"), &passphrase("correct horse")).unwrap();
    assert_eq!(identity(read), identity(log.clone()));
    assert_eq!(identity(LogKey::load_pem(&place.path("log-plain.pem")).unwrap()), identity(log));
}

#[test]
fn an_encrypted_key_of_another_kind_is_named_once_it_is_decrypted() {
    let Some(place) = Place::new() else { return };
    for (algorithm, found) in [
        (["-algorithm", "ed25519"].as_slice(), "an Ed25519 key"),
        (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"], "an ECDSA secp256k1 key"),
        (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"], "an ECDSA P-521 key"),
        (&["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"], "an RSA key"),
        (&["-algorithm", "X25519"], "an X25519 key"),
    ] {
        let mut arguments = vec!["genpkey", "-out", "other.pem", "-aes256", "-pass", "pass:x"];
        arguments.extend(algorithm);
        place.openssl(&arguments);
        let error = ArtifactKey::load(&place.path("other.pem"), &passphrase("x")).unwrap_err().to_string();
        assert!(error.contains(found) && error.contains("SHA-256 digest"), "{error}");
    }
}

#[test]
fn changed_encrypted_keys_give_errors_and_nothing_else() {
    let Some(place) = Place::new() else { return };
    for (name, options) in [("pbkdf2", ["-v2", "aes-256-cbc", "-iter", "1"].as_slice()), ("scrypt", &["-scrypt"])] {
        let file = format!("{name}.der");
        let mut arguments = vec!["pkcs8", "-topk8", "-in", "plain.pem", "-outform", "DER", "-out", &file];
        arguments.extend(["-passout", "pass:x"]);
        arguments.extend(options);
        place.openssl(&arguments);
        let der = std::fs::read(place.path(&file)).unwrap();
        let secret = Passphrase::new(b"x".to_vec());
        assert!(symseal_sealer::keys::decrypt_pbes2(&der, &secret).is_ok());
        // The head: structure, costs and identifiers. What follows is salt and ciphertext.
        for n in (0..der.len().min(130)).filter(|n| name == "pbkdf2" || n % 8 == 0) {
            for value in [0, 0x7f, 0xff, der[n] ^ 1] {
                let mut changed = der.clone();
                changed[n] = value;
                let _ = symseal_sealer::keys::decrypt_pbes2(&changed, &secret);
            }
            assert!(symseal_sealer::keys::decrypt_pbes2(&der[..n], &secret).is_err());
        }
    }
}

/// A key that cosign 3.1.2 made (`COSIGN_PASSWORD=symseal cosign generate-key-pair`).
const COSIGN_KEY: &str = include_str!("golden/cosign.key");
const COSIGN_PUBLIC: &str = include_str!("golden/cosign.pub");

#[test]
fn a_key_that_cosign_made_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cosign.key");
    for label in ["SIGSTORE", "COSIGN"] {
        std::fs::write(&path, COSIGN_KEY.replace("SIGSTORE", label)).unwrap();
        let key = ArtifactKey::load(&path, &passphrase("symseal")).unwrap();
        assert_eq!(key.public().to_pem(), COSIGN_PUBLIC);
        let error = ArtifactKey::load(&path, &passphrase("other")).unwrap_err();
        assert!(matches!(error, KeyFileError::Encrypted { source: DecryptError::WrongPassphrase, .. }), "{error}");
    }
}

#[test]
fn changed_cosign_keys_are_refused_before_any_work_is_done() {
    let body: String = COSIGN_KEY.lines().filter(|line| !line.starts_with("-----")).collect();
    let json = String::from_utf8(symseal_seal::encoding::from_base64(&body).unwrap()).unwrap();
    let secret = Passphrase::new(b"symseal".to_vec());
    let decrypt = |json: &str| symseal_sealer::keys::decrypt_cosign(json.as_bytes(), &secret);
    assert!(decrypt(&json).is_ok());
    let mut value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let n = value.pointer("/kdf/params/N").unwrap().as_u64().unwrap();
    for (pointer, bad) in [
        ("/kdf/params/N", serde_json::json!(0)),
        ("/kdf/params/N", serde_json::json!(1)),
        ("/kdf/params/N", serde_json::json!(n + 1)),
        ("/kdf/params/N", serde_json::json!(1_u64 << 40)),
        ("/kdf/params/N", serde_json::json!(-1)),
        ("/kdf/params/r", serde_json::json!(0)),
        ("/kdf/params/r", serde_json::json!(u32::MAX)),
        ("/kdf/params/p", serde_json::json!(u32::MAX)),
        ("/kdf/name", serde_json::json!("argon2")),
        ("/kdf/salt", serde_json::json!("*")),
        ("/cipher/name", serde_json::json!("none")),
        ("/cipher/nonce", serde_json::json!("AAAA")),
        ("/ciphertext", serde_json::json!("*")),
        ("/ciphertext", serde_json::json!(null)),
    ] {
        let field = value.pointer_mut(pointer).unwrap();
        let good = std::mem::replace(field, bad.clone());
        let started = Instant::now();
        let error = decrypt(&value.to_string()).unwrap_err();
        assert!(started.elapsed() < Duration::from_millis(300), "{pointer} {bad}");
        assert!(!matches!(error, DecryptError::WrongPassphrase), "{pointer} {bad}: {error}");
        *value.pointer_mut(pointer).unwrap() = good;
    }
    *value.pointer_mut("/ciphertext").unwrap() = "AAAA".into();
    assert_eq!(decrypt(&value.to_string()).err(), Some(DecryptError::WrongPassphrase));
}

/// Writes a program that signs with OpenSSL and `plain.pem`, or does what `sign` says.
#[cfg(unix)]
fn program(place: &Place, public_key: &str, sign: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = place.path("signer.sh");
    let directory = place.0.path().display();
    let text = format!("#!/bin/sh\ncd '{directory}'\ncase $1 in\npublic-key) {public_key} ;;\nsign) {sign} ;;\nesac\n");
    // Under another name first: a program that is open for writing cannot be started.
    let new = place.path("signer.new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path
}

#[cfg(unix)]
const SIGN: &str = "openssl dgst -sha256 -sign plain.pem | openssl base64";

#[cfg(unix)]
#[test]
fn a_program_signs_and_openssl_verifies() {
    let Some(place) = Place::new() else { return };
    // One program signs the message, another the digest, as key services do.
    let digest = "printf %s \"$SYMSEAL_SHA256\" | sed 's/../\\\\x&/g' | xargs -0 printf %b >digest; \
                  openssl pkeyutl -sign -inkey plain.pem -in digest | openssl base64 -A";
    for sign in [SIGN, digest] {
        let path = program(&place, "cat public.pem", sign);
        let source: KeySource = format!("exec:{}", path.display()).parse().unwrap();
        let signer = source.open(&no_passphrase).unwrap();
        let message = vec![7_u8; 40_000];
        let signature = sign_verified(&*signer, &message).unwrap();
        assert!(place.openssl_verifies(&message, &signature));
        assert_eq!(signer.public().to_pem(), std::fs::read_to_string(place.path("public.pem")).unwrap());
        assert!(signer.name().starts_with("exec:"));
    }
}

#[cfg(unix)]
#[test]
fn a_program_that_fails_says_so_and_nothing_is_used() {
    let Some(place) = Place::new() else { return };
    let open = |path: &Path| ProgramSigner::open_within(path, Duration::from_secs(2));
    let failing = |public_key: &str, sign: &str| {
        let signer = match open(&program(&place, public_key, sign)) {
            Ok(signer) => signer,
            Err(error) => return error,
        };
        sign_verified(&signer, b"message").unwrap_err()
    };
    let reason = |public_key: &str, sign: &str| failing(public_key, sign).to_string();
    let good = "cat public.pem";
    assert!(open(Path::new("/nowhere/program")).unwrap_err().to_string().contains("cannot be started"));
    assert!(reason("exit 0", SIGN).contains("PEM block \"PUBLIC KEY\""));
    assert!(reason("cat plain.pem", SIGN).contains("PEM block \"PUBLIC KEY\""));
    let denied = reason(good, "printf 'access \\033[31mdenied\\n' >&2; exit 3");
    assert!(denied.contains("exit status: 3") && denied.contains("denied") && !denied.contains('\u{1b}'), "{denied}");
    assert!(reason(good, "echo nonsense!").contains("expected the base64"));
    assert!(reason(good, "head -c 100000 /dev/zero").contains("65536 bytes"));
    // One that never ends is stopped at the limit of its output, before that of its time.
    assert!(reason(good, "yes").contains("65536 bytes"));
    // The signature of another message, of another key, and none that is DER.
    for wrong in ["printf other | openssl dgst -sha256 -sign plain.pem | openssl base64", "echo AAAA", "true"] {
        assert!(matches!(failing(good, wrong), SignError::Wrong { .. }), "{wrong}");
    }
    for slow in ["sleep 30", "(sleep 30 &) ; sleep 30"] {
        let started = Instant::now();
        let error = reason(good, slow);
        assert!(error.contains("within 2 seconds"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(8));
    }
    // What it leaves behind may hold its output open.
    let started = Instant::now();
    let error = reason(good, "(sleep 30 &); echo AAAA");
    assert!(started.elapsed() < Duration::from_secs(8), "{error}");

    place.openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384", "-out", "p384.pem"]);
    let error = failing("openssl pkey -in p384.pem -pubout", SIGN);
    assert!(matches!(error, SignError::Kind { .. }) && error.to_string().contains("P-384"), "{error}");
}

/// A SoftHSM token in a directory of its own.
#[cfg(feature = "pkcs11")]
struct Token {
    place: Place,
    module: PathBuf,
}

#[cfg(feature = "pkcs11")]
impl Token {
    fn new() -> Option<Self> {
        let place = Place::new()?;
        let modules = [
            "/usr/lib/softhsm/libsofthsm2.so",
            "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
            "/usr/lib64/pkcs11/libsofthsm2.so",
        ];
        if !have("softhsm2-util", "--version") || !have("pkcs11-tool", "--help") {
            return None;
        }
        let module = modules.iter().map(PathBuf::from).find(|path| path.exists()).expect("SoftHSM's library");
        let tokens = place.path("tokens");
        std::fs::create_dir(&tokens).unwrap();
        std::fs::write(
            place.path("softhsm2.conf"),
            format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display()),
        )
        .unwrap();
        let token = Self { place, module };
        token.run(
            "softhsm2-util",
            &["--init-token", "--free", "--label", "symseal test", "--so-pin", "4321", "--pin", "1234"],
        );
        token.run(
            "softhsm2-util",
            &["--import", "plain.pem", "--token", "symseal test", "--label", "release", "--id", "a1", "--pin", "1234"],
        );
        for (kind, label) in [("EC:secp384r1", "p384"), ("EC:secp256k1", "k1"), ("rsa:2048", "rsa")] {
            let module = token.module.to_str().unwrap();
            token.run(
                "pkcs11-tool",
                &[
                    "--module",
                    module,
                    "--token-label",
                    "symseal test",
                    "--login",
                    "--pin",
                    "1234",
                    "--keypairgen",
                    "--key-type",
                    kind,
                    "--label",
                    label,
                ],
            );
        }
        Some(token)
    }

    fn conf(&self) -> PathBuf {
        self.place.path("softhsm2.conf")
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) {
        let output = Command::new(program)
            .current_dir(self.place.0.path())
            .env("SOFTHSM2_CONF", self.conf())
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Set for the child that this test starts of itself: SoftHSM reads its configuration from the environment, once.
#[cfg(feature = "pkcs11")]
const CHILD: &str = "SYMSEAL_TEST_TOKEN_MODULE";

#[cfg(feature = "pkcs11")]
#[test]
fn a_key_in_a_token_signs_and_openssl_verifies() {
    if std::env::var_os(CHILD).is_some() {
        return in_token();
    }
    let Some(token) = Token::new() else { return };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "signers::a_key_in_a_token_signs_and_openssl_verifies", "--nocapture"])
        .current_dir(token.place.0.path())
        .env(CHILD, &token.module)
        .env("SOFTHSM2_CONF", token.conf())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let signature = std::fs::read(token.place.path("by-token")).unwrap();
    assert!(token.place.openssl_verifies(b"message", &signature));
}

#[cfg(feature = "pkcs11")]
fn in_token() {
    let module = std::env::var(CHILD).unwrap();
    let open = |attributes: &str, query: &str, pin: &str| -> Result<Box<dyn Signer>, OpenSignerError> {
        let uri = format!("pkcs11:{attributes}?module-path={module}{query}");
        uri.parse::<KeySource>().unwrap().open(&passphrase(pin))
    };
    let error = |attributes: &str, query: &str, pin: &str| open(attributes, query, pin).err().unwrap().to_string();
    let named = "token=symseal%20test;object=release";

    // Before anybody is logged in: the login is the process's, not the session's.
    assert!(error(named, "", "9999").contains("refused the PIN"));
    assert!(error(named, "&pin-source=/nowhere/pin", "").contains("/nowhere/pin"));
    let no_pin = format!("pkcs11:{named}?module-path={module}").parse::<KeySource>().unwrap().open(&no_passphrase);
    assert!(no_pin.err().unwrap().to_string().contains("no PIN"));

    let signer = open(named, "", "1234").unwrap();
    let signature = sign_verified(&*signer, b"message").unwrap();
    std::fs::write("by-token", signature).unwrap();
    assert_eq!(signer.name(), "pkcs11:token=symseal%20test;object=release");
    assert_eq!(signer.public().to_pem(), std::fs::read_to_string("public.pem").unwrap());

    std::fs::write("pin", "1234\n").unwrap();
    let pin = std::env::current_dir().unwrap().join("pin");
    let by_id = open("id=%a1", &format!("&pin-source=file:{}", pin.display()), "").unwrap();
    sign_verified(&*by_id, b"message").unwrap();

    let other = error("token=other;object=release", "", "1234");
    assert!(other.contains("one token that fits, found 0") && other.contains("symseal test"), "{other}");
    assert!(error("token=symseal%20test;object=none", "", "1234").contains("found 0"));
    for (label, found) in [("p384", "P-384"), ("k1", "secp256k1"), ("rsa", "an RSA key")] {
        let refused = error(&format!("object={label}"), "", "1234");
        assert!(refused.contains(found) && refused.contains("expected an ECDSA P-256 key"), "{refused}");
    }
    let no_library = "pkcs11:object=a?module-path=/nowhere.so".parse::<KeySource>().unwrap().open(&no_passphrase);
    assert!(no_library.err().unwrap().to_string().contains("/nowhere.so"));
}
