//! Pipelines that show what their CI signed for them, against an issuer on this machine.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::programs::run;
use crate::support::{Running, http, noise};
use axum::Json;
use axum::extract::State;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Body, Client, StatusCode};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use symseal_bundle::{Digest, oci};
use symseal_server::ConfigFile;

const AUDIENCE: &str = "https://symbols.example.org";

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A key of an issuer, and how it is published.
struct Signer {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        Self { id, pair }
    }

    fn published(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({ "kty": "EC", "crv": "P-256", "kid": self.id, "alg": "ES256", "use": "sig", "x": encoded(&point[1..33]), "y": encoded(&point[33..]) })
    }

    fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({ "alg": "ES256", "typ": "JWT", "kid": self.id }), claims)
    }

    fn token_with(&self, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", encoded(signature))
    }
}

/// An issuer: its URL, and the keys that it publishes.
struct Issuer {
    url: String,
    keys: Arc<Mutex<Vec<Value>>>,
}

async fn issuer() -> Issuer {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let keys = Arc::<Mutex<Vec<Value>>>::default();
    let discovery = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
    let answer = async |State(keys): State<Arc<Mutex<Vec<Value>>>>| Json(json!({ "keys": *keys.lock().unwrap() }));
    let router = axum::Router::new()
        .route("/.well-known/openid-configuration", get(async move || Json(discovery.clone())))
        .route("/keys", get(answer))
        .with_state(Arc::clone(&keys));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Issuer { url, keys }
}

fn claims(issuer: &str) -> Value {
    json!({
        "iss": issuer, "aud": AUDIENCE, "sub": "repo:acme/app:ref:refs/tags/v1", "exp": now() + 300, "nbf": now() - 5, "iat": now() - 5,
        "repository": "acme/app", "ref": "refs/tags/v1",
    })
}

async fn server(folder: &Path, issuer: &str) -> Running {
    server_with(folder, issuer, "").await
}

/// One whose configuration has more lines at its end.
async fn server_with(folder: &Path, issuer: &str, more: &str) -> Running {
    let file = folder.join("server.toml");
    let text = format!(
        r#"
            [access]
            mode = "tokens"
            [[access.oidc]]
            issuer = "{issuer}"
            audience = "{AUDIENCE}"
            [[access.oidc.rules]]
            claims = {{ repository = "acme/app", ref = "refs/tags/*" }}
            grants = ["write:acme/app"]
            [[access.oidc.rules]]
            claims = {{ repository = "acme/app" }}
            grants = ["read:acme"]
            {more}
        "#
    );
    std::fs::write(&file, text).unwrap();
    let file = ConfigFile::load(Some(&file), Vec::new()).unwrap();
    let config = file.config(folder.join("data"), ([127, 0, 0, 1], 0).into()).unwrap();
    Running::start_as(config).await
}

/// Begins an upload.
async fn push(http: &Client, server: &Running, repository: &str, token: &str) -> StatusCode {
    let request = http.post(server.url(&format!("/v2/{repository}/blobs/uploads/")));
    request.basic_auth("ci", Some(token)).send().await.unwrap().status()
}

#[tokio::test]
async fn a_pipeline_does_what_its_claims_give_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, signer) = (issuer().await, Signer::new("one"));
    issuer.keys.lock().unwrap().push(signer.published());
    let (server, http) = (server(folder.path(), &issuer.url).await, http());

    let release = signer.token(&claims(&issuer.url));
    assert_eq!(push(&http, &server, "acme/app", &release).await, StatusCode::ACCEPTED);
    assert_eq!(push(&http, &server, "acme/other", &release).await, StatusCode::FORBIDDEN);
    let mut of_branch = claims(&issuer.url);
    of_branch["ref"] = json!("refs/heads/main");
    assert_eq!(
        push(&http, &server, "acme/app", &signer.token(&of_branch)).await,
        StatusCode::FORBIDDEN,
        "it may read alone"
    );

    // A session of a registry client ends with the pipeline's token, and may do no more.
    let mut short = claims(&issuer.url);
    short["exp"] = json!(now() + 60);
    let url = server.url("/api/v1/token?scope=repository:acme/app:pull,push&scope=repository:acme/other:push");
    let answer = http.get(url).basic_auth("ci", Some(signer.token(&short))).send().await.unwrap();
    let session: Value = answer.json().await.unwrap();
    assert!((55..=60).contains(&session["expires_in"].as_i64().unwrap()), "{session}");
    let session = session["token"].as_str().unwrap();
    let sealed: Value = serde_json::from_slice(
        &URL_SAFE_NO_PAD.decode(session.trim_start_matches("symsess_").split('.').next().unwrap()).unwrap(),
    )
    .unwrap();
    assert_eq!(sealed["exp"], short["exp"]);
    assert_eq!(push(&http, &server, "acme/app", session).await, StatusCode::ACCEPTED);
    assert_eq!(
        push(&http, &server, "acme/other", session).await,
        StatusCode::FORBIDDEN,
        "no larger session would let it"
    );

    // What does not hold is 401, and says nothing else.
    let with = |name: &str, value: Value| {
        let mut claims = claims(&issuer.url);
        claims[name] = value;
        signer.token(&claims)
    };
    let without = |name: &str| {
        let mut claims = claims(&issuer.url);
        claims.as_object_mut().unwrap().remove(name);
        signer.token(&claims)
    };
    let stranger = Signer::new("one").token(&claims(&issuer.url));
    let parts: Vec<&str> = release.split('.').collect();
    let unsigned = format!("{}.{}.", encoded(r#"{"alg":"none"}"#), parts[1]);
    // The published key as if it were a shared secret.
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, signer.pair.public_key().as_ref());
    let text = format!("{}.{}", encoded(r#"{"alg":"HS256","kid":"one"}"#), parts[1]);
    let shared = format!("{text}.{}", encoded(ring::hmac::sign(&secret, text.as_bytes())));
    // Extensions that whoever reads the token must understand (RFC 7515, section 4.1.11; RFC 7797 has the one that is in use).
    let critical = |names: Value| {
        let header = json!({ "alg": "ES256", "kid": "one", "crit": names, "b64": true, "exp": now() + 60 });
        signer.token_with(&header, &claims(&issuer.url))
    };
    for (what, token) in [
        ("of the future", with("iat", json!(now() + 600))),
        ("of the future, to the millisecond", with("iat", json!(now() as f64 + 600.5))),
        ("of no time", with("iat", json!("yesterday"))),
        ("with an extension that must be known", critical(json!(["exp"]))),
        ("with one that is", critical(json!(["b64"]))),
        ("with an empty list of them", critical(json!([]))),
        ("for another service", with("aud", json!("https://other.example.org"))),
        ("of another issuer", with("iss", json!("https://ci.example.org"))),
        ("expired", with("exp", json!(now() - 60))),
        ("until no time", with("exp", json!(u64::MAX))),
        ("not yet", with("nbf", json!(now() + 600))),
        ("not yet, by a text", with("nbf", json!((now() + 600).to_string()))),
        ("from no time on", with("nbf", json!("abc"))),
        ("not in this universe", with("nbf", json!(1e300))),
        ("of another repository", with("repository", json!("evil/app"))),
        ("without an end", without("exp")),
        ("without a subject", without("sub")),
        ("for nobody", without("aud")),
        ("by another key of this name", stranger),
        ("unsigned", unsigned),
        ("by a shared secret", shared),
        ("cut off", format!("{}.{}", parts[0], parts[1])),
        ("changed", format!("{}.{}.{}", parts[0], encoded(claims(&issuer.url).to_string()), "AAAA")),
        ("nonsense", "a.b.c".to_owned()),
    ] {
        assert_eq!(push(&http, &server, "acme/app", &token).await, StatusCode::UNAUTHORIZED, "{what}");
    }
    for (what, token) in [
        ("of a clock that goes before", with("iat", json!(now() + 20))),
        ("that does not say when", without("iat")),
        ("by fractions of a second", with("iat", json!(now() as f64 - 0.5))),
        ("until a fraction of a second", with("exp", json!(now() as f64 + 300.5))),
    ] {
        assert_eq!(push(&http, &server, "acme/app", &token).await, StatusCode::ACCEPTED, "{what}");
    }
    server.stop().await;
}

#[tokio::test]
async fn pipelines_with_the_same_rights_are_one_caller_whatever_their_subjects() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, signer) = (issuer().await, Signer::new("one"));
    issuer.keys.lock().unwrap().push(signer.published());
    let limits = "[limits]\nrequests_per_second = 0.001\nburst = 4";
    let (server, http) = (server_with(folder.path(), &issuer.url, limits).await, http());
    let of = |branch: &str, reference: &str| {
        let mut claims = claims(&issuer.url);
        claims["sub"] = json!(format!("repo:acme/app:ref:refs/heads/{branch}"));
        claims["ref"] = json!(reference);
        signer.token(&claims)
    };
    for branch in ["a", "b", "c", "d"] {
        assert_eq!(push(&http, &server, "acme/app", &of(branch, "refs/tags/v1")).await, StatusCode::ACCEPTED);
    }
    let fifth = push(&http, &server, "acme/app", &of("e", "refs/tags/v1")).await;
    assert_eq!(fifth, StatusCode::TOO_MANY_REQUESTS);
    // Others, which may read alone, have turns of their own.
    assert_eq!(push(&http, &server, "acme/app", &of("f", "refs/heads/f")).await, StatusCode::FORBIDDEN);
    server.stop().await;
}

/// (RFC 7517, sections 4.2, 4.3 and 5)
#[tokio::test]
async fn a_key_that_its_issuer_has_for_other_things_signs_nothing() {
    let (signer, other, http) = (Signer::new("one"), Signer::new("two"), http());
    for (name, value, expected) in [
        ("use", json!("enc"), StatusCode::UNAUTHORIZED),
        ("key_ops", json!(["deriveKey"]), StatusCode::UNAUTHORIZED),
        ("key_ops", json!(["verify"]), StatusCode::ACCEPTED),
    ] {
        let (folder, issuer) = (tempfile::tempdir().unwrap(), issuer().await);
        let mut key = signer.published();
        key.as_object_mut().unwrap().remove("use");
        key[name] = value.clone();
        // Kinds of keys that are not known here, as servers that also encrypt have, keep none of the others away.
        let strange =
            json!({ "kty": "OKP", "crv": "X448", "kid": "three", "use": "enc", "alg": "ECDH-ES+A256KW", "x": "AA" });
        issuer.keys.lock().unwrap().extend([key, strange, other.published()]);
        let server = server(folder.path(), &issuer.url).await;
        let token = signer.token(&claims(&issuer.url));
        assert_eq!(push(&http, &server, "acme/app", &token).await, expected, "{name} {value}");
        let sound = other.token(&claims(&issuer.url));
        assert_eq!(push(&http, &server, "acme/app", &sound).await, StatusCode::ACCEPTED, "{name} {value}");
        server.stop().await;
    }
}

/// A body whose second half comes after a while.
fn slow(bytes: &[u8], pause: Duration) -> Body {
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let (first, rest) = (first.to_vec(), rest.to_vec());
    let first = futures_util::stream::once(async move { Ok::<_, std::io::Error>(first) });
    let rest = futures_util::stream::once(async move {
        tokio::time::sleep(pause).await;
        Ok(rest)
    });
    Body::wrap_stream(futures_util::StreamExt::chain(first, rest))
}

#[tokio::test]
async fn what_ends_after_the_pipelines_token_expired_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, signer) = (issuer().await, Signer::new("one"));
    issuer.keys.lock().unwrap().push(signer.published());
    let (server, http) = (server(folder.path(), &issuer.url).await, http());
    let release = signer.token(&claims(&issuer.url));
    let expiring = |seconds: i64| {
        let mut claims = claims(&issuer.url);
        claims["exp"] = json!(i64::try_from(now()).unwrap() + seconds);
        signer.token(&claims)
    };
    let layer = noise(4000, 1);
    let layer_digest = Digest::of(&layer);
    let url = |digest: &Digest| server.url(&format!("/v2/acme/app/blobs/uploads/?digest={digest}"));
    let pushed = http.post(url(&layer_digest)).bearer_auth(&release).body(layer).send().await.unwrap();
    assert_eq!(pushed.status(), StatusCode::CREATED);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": oci::MANIFEST, "artifactType": "a/b",
        "layers": [{ "mediaType": "a/b", "digest": layer_digest.to_string(), "size": 4000 }],
    })
    .to_string();
    let late = noise(900_000, 2);
    let late_digest = Digest::of(&late);
    // Clocks may be half a minute apart: these hold for three seconds more.
    let (token, pause) = (expiring(-27), Duration::from_secs(5));
    let blob = http.post(url(&late_digest)).bearer_auth(&token).body(slow(&late, pause));
    let put = http.put(server.url("/v2/acme/app/manifests/late")).bearer_auth(&token);
    let put = put.header("content-type", oci::MANIFEST).body(slow(manifest.as_bytes(), pause));
    // A session ends with the token by the clock, and what began in it goes on for as long as the token holds.
    let session = server.url("/api/v1/token?scope=repository:acme/app:pull,push");
    let session = http.get(session).basic_auth("ci", Some(expiring(3))).send().await.unwrap();
    let session: Value = session.json().await.unwrap();
    let session = session["token"].as_str().unwrap();
    let kept = noise(900_000, 3);
    let kept_digest = Digest::of(&kept);
    let in_session = http.post(url(&kept_digest)).bearer_auth(session).body(slow(&kept, pause));
    let (blob, put, in_session) = tokio::join!(blob.send(), put.send(), in_session.send());
    for refused in [blob.unwrap(), put.unwrap()] {
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        let text = refused.text().await.unwrap();
        assert!(text.contains("expired meanwhile") && text.contains("new one"), "{text}");
    }
    assert_eq!(in_session.unwrap().status(), StatusCode::CREATED);
    for (path, expected) in [
        (format!("blobs/{late_digest}"), StatusCode::NOT_FOUND),
        ("manifests/late".to_owned(), StatusCode::NOT_FOUND),
        (format!("blobs/{kept_digest}"), StatusCode::OK),
    ] {
        let found = http.get(server.url(&format!("/v2/acme/app/{path}"))).bearer_auth(&release).send().await.unwrap();
        assert_eq!(found.status(), expected, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_session_of_an_issuer_that_was_taken_off_the_list_does_not_hold() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (issuer().await, issuer().await);
    let (signer, http) = (Signer::new("one"), http());
    one.keys.lock().unwrap().push(signer.published());
    let server = self::server(folder.path(), &one.url).await;
    let url = server.url("/api/v1/token?scope=repository:acme/app:pull,push");
    let session = http.get(url).basic_auth("ci", Some(signer.token(&claims(&one.url)))).send().await.unwrap();
    let session: Value = session.json().await.unwrap();
    let session = session["token"].as_str().unwrap();
    assert_eq!(push(&http, &server, "acme/app", session).await, StatusCode::ACCEPTED);
    server.stop().await;
    let server = self::server(folder.path(), &other.url).await;
    assert_eq!(push(&http, &server, "acme/app", session).await, StatusCode::UNAUTHORIZED);
    server.stop().await;
    let server = self::server(folder.path(), &one.url).await;
    assert_eq!(push(&http, &server, "acme/app", session).await, StatusCode::ACCEPTED);
    server.stop().await;
}

#[tokio::test]
async fn an_issuer_that_does_not_answer_is_no_reason_to_refuse_or_to_believe() {
    let folder = tempfile::tempdir().unwrap();
    let (issuer, signer) = (issuer().await, Signer::new("one"));
    // It has no keys yet, then others than the token's: both are the issuer's word.
    let (server, http) = (server(folder.path(), &issuer.url).await, http());
    let token = signer.token(&claims(&issuer.url));
    assert_eq!(push(&http, &server, "acme/app", &token).await, StatusCode::UNAUTHORIZED);
    server.stop().await;

    let nobody = "http://127.0.0.1:9";
    let away = tempfile::tempdir().unwrap();
    let server = self::server(away.path(), nobody).await;
    let status = push(&http, &server, "acme/app", &signer.token(&claims(nobody))).await;
    assert!(status.is_server_error(), "{status}");
    server.stop().await;
}

/// OpenSSL as the signer, as most CI systems sign: RSA with SHA-256.
#[tokio::test]
async fn a_token_that_openssl_signed_holds() {
    // It knows no `--version`.
    if Command::new("openssl").arg("version").output().is_err() {
        println!("SKIP openssl: not found");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    run("openssl", &["genrsa", "-out", &at("key.pem"), "2048"]);
    let modulus = Command::new("openssl").args(["rsa", "-noout", "-modulus", "-in", &at("key.pem")]).output().unwrap();
    let modulus = String::from_utf8(modulus.stdout).unwrap();
    let hex = modulus.trim().trim_start_matches("Modulus=");
    let modulus: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let issuer = issuer().await;
    let key = json!({ "kty": "RSA", "kid": "rsa", "alg": "RS256", "n": encoded(&modulus), "e": "AQAB" });
    issuer.keys.lock().unwrap().push(key);
    let text = format!("{}.{}", encoded(r#"{"alg":"RS256","kid":"rsa"}"#), encoded(claims(&issuer.url).to_string()));
    std::fs::write(at("text"), &text).unwrap();
    run("openssl", &["dgst", "-sha256", "-sign", &at("key.pem"), "-out", &at("signature"), &at("text")]);
    let token = format!("{text}.{}", encoded(std::fs::read(at("signature")).unwrap()));
    let server = server(folder.path(), &issuer.url).await;
    assert_eq!(push(&http(), &server, "acme/app", &token).await, StatusCode::ACCEPTED);
    server.stop().await;
}
