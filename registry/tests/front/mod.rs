//! Stands before a real server: asks for credentials as registries do, counts what goes by, and takes away what some registries lack.
#![allow(dead_code, unreachable_pub, reason = "each test file has this module and uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How the front behaves.
#[derive(Debug, Clone, Default)]
pub struct Manners {
    pub login: Login,
    /// As a registry from before the referrers API: no such endpoint, and no `OCI-Subject`.
    pub without_referrers: bool,
    /// Every mount becomes an upload.
    pub without_mounts: bool,
    /// Requests that a token serves before it has expired.
    pub token_uses: Option<usize>,
}

/// Whom the front lets in.
#[derive(Debug, Clone, Default)]
pub enum Login {
    #[default]
    Nobody,
    Basic {
        user: &'static str,
        password: &'static str,
    },
    /// A token server of its own gives tokens for user and password, or for an identity token.
    Bearer {
        user: &'static str,
        password: &'static str,
        identity: &'static str,
    },
}

/// A request that went by, with the bytes of its body and of the answer's.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub authorization: Option<String>,
    pub status: StatusCode,
    pub sent: u64,
    pub received: u64,
}

impl Seen {
    /// A blob or a piece of one on its way to the registry.
    pub fn is_upload(&self) -> bool {
        self.path.contains("/blobs/uploads/") && matches!(self.method, Method::PUT | Method::PATCH | Method::POST)
    }

    /// A blob on its way from the registry.
    pub fn is_download(&self) -> bool {
        self.path.contains("/blobs/") && self.method == Method::GET
    }
}

/// A running front; it lives as long as the test's process.
#[derive(Clone)]
pub struct Front {
    pub address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    upstream: String,
    address: Mutex<Option<SocketAddr>>,
    manners: Manners,
    http: reqwest::Client,
    seen: Mutex<Vec<Seen>>,
    /// Scopes and uses by token.
    tokens: Mutex<BTreeMap<String, (Vec<String>, usize)>>,
}

impl Front {
    /// Starts a front before the server at `upstream`, on a thread of its own.
    pub fn start(upstream: impl std::fmt::Display, manners: Manners) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let inner = Arc::new(Inner {
            upstream: format!("http://{upstream}"),
            address: Mutex::default(),
            manners,
            http: reqwest::Client::new(),
            seen: Mutex::default(),
            tokens: Mutex::default(),
        });
        let (tell, told) = std::sync::mpsc::channel();
        let shared = Arc::clone(&inner);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let router = axum::Router::new().fallback(pass).with_state(shared);
                axum::serve(listener, router).await.unwrap();
            });
        });
        let address = told.recv().unwrap();
        *inner.address.lock().unwrap() = Some(address);
        Self { address, inner }
    }

    /// What went by since the last call.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.inner.seen.lock().unwrap())
    }
}

async fn pass(State(front): State<Arc<Inner>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let mut seen = Seen {
        method: parts.method.clone(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        authorization: authorization.map(str::to_owned),
        status: StatusCode::OK,
        sent: body.len() as u64,
        received: 0,
    };
    let (status, headers, bytes) = front.answer(&parts.method, &parts.uri, &parts.headers, body).await;
    seen.status = status;
    seen.received = bytes.len() as u64;
    front.seen.lock().unwrap().push(seen);
    (status, headers, Body::from(bytes)).into_response()
}

type Answer = (StatusCode, HeaderMap, Bytes);

impl Inner {
    async fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Answer {
        if uri.path() == "/token" {
            return self.token(method, uri, headers, &body);
        }
        let mut path_and_query = uri.path_and_query().unwrap().to_string();
        let scopes = match self.let_in(method, uri, headers) {
            Ok(scopes) => scopes,
            Err(refusal) => return *refusal,
        };
        let query = pairs(uri.query().unwrap_or_default());
        if let Some(from) = value(&query, "from") {
            let wanted = format!("repository:{from}:pull");
            let may = scopes.is_none_or(|scopes| scopes.contains(&wanted));
            if self.manners.without_mounts || !may {
                // distribution-spec, "Mounting a blob from another repository": otherwise an upload is begun.
                path_and_query = uri.path().to_owned();
            }
        }
        if self.manners.without_referrers && uri.path().contains("/referrers/") {
            return (StatusCode::NOT_FOUND, HeaderMap::new(), Bytes::from_static(b"404 page not found"));
        }
        let mut request = self.http.request(method.clone(), format!("{}{path_and_query}", self.upstream));
        for name in [header::ACCEPT, header::CONTENT_TYPE, header::CONTENT_RANGE, header::RANGE] {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let response = request.body(body).send().await.unwrap();
        let (status, mut headers) = (response.status(), response.headers().clone());
        let is_head = *method == Method::HEAD;
        let bytes = if is_head { Bytes::new() } else { response.bytes().await.unwrap() };
        headers.remove(header::TRANSFER_ENCODING);
        headers.remove(header::CONNECTION);
        if !is_head {
            headers.remove(header::CONTENT_LENGTH);
        }
        if self.manners.without_referrers {
            headers.remove("oci-subject");
        }
        (status, headers, bytes)
    }

    /// The scopes of a token, where there is one; the refusal, where credentials are missing.
    fn let_in(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Option<Vec<String>>, Box<Answer>> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match &self.manners.login {
            Login::Nobody => Ok(None),
            Login::Basic { user, password } if is_basic(given, user, password) => Ok(None),
            Login::Basic { .. } => Err(Box::new(refusal("Basic realm=\"a registry\""))),
            Login::Bearer { .. } => {
                let repository = repository(uri.path());
                let action = if matches!(*method, Method::GET | Method::HEAD) { "pull" } else { "push" };
                let mut tokens = self.tokens.lock().unwrap();
                let known = given.strip_prefix("Bearer ").and_then(|token| tokens.get_mut(token));
                if let Some((scopes, uses)) = known {
                    *uses += 1;
                    let wanted = format!("repository:{repository}:{action}");
                    if self.manners.token_uses.is_none_or(|most| *uses <= most) && scopes.contains(&wanted) {
                        return Ok(Some(scopes.clone()));
                    }
                }
                let actions = if action == "pull" { "pull" } else { "pull,push" };
                let address = self.address.lock().unwrap().unwrap();
                Err(Box::new(refusal(&format!(
                    "Bearer realm=\"http://{address}/token\",service=\"a registry\",scope=\"repository:{repository}:{actions}\""
                ))))
            }
        }
    }

    fn token(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Answer {
        let Login::Bearer { user, password, identity } = &self.manners.login else {
            return (StatusCode::NOT_FOUND, HeaderMap::new(), Bytes::new());
        };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let form =
            if *method == Method::POST { std::str::from_utf8(body).unwrap() } else { uri.query().unwrap_or_default() };
        let form = pairs(form);
        let is_let_in = match *method {
            Method::POST => {
                value(&form, "grant_type") == Some("refresh_token") && value(&form, "refresh_token") == Some(identity)
            }
            _ => is_basic(given, user, password),
        };
        if !is_let_in {
            let message = r#"{"errors":[{"code":"UNAUTHORIZED","message":"incorrect username or password"}]}"#;
            return (StatusCode::UNAUTHORIZED, HeaderMap::new(), Bytes::from_static(message.as_bytes()));
        }
        assert_eq!(value(&form, "service"), Some("a registry"), "the service of the challenge");
        let scopes = form.iter().filter(|(name, _)| name == "scope").flat_map(|(_, scopes)| scopes.split(' '));
        let scopes: Vec<String> = scopes
            .flat_map(|scope| {
                let (resource, actions) = scope.rsplit_once(':').unwrap();
                actions.split(',').map(|action| format!("{resource}:{action}")).collect::<Vec<_>>()
            })
            .collect();
        let mut tokens = self.tokens.lock().unwrap();
        let token = format!("token-{}", tokens.len());
        tokens.insert(token.clone(), (scopes, 0));
        let answer = format!(r#"{{"token":"{token}","expires_in":300}}"#);
        (StatusCode::OK, HeaderMap::new(), Bytes::from(answer))
    }
}

fn refusal(challenge: &str) -> Answer {
    let headers = HeaderMap::from_iter([(header::WWW_AUTHENTICATE, HeaderValue::from_str(challenge).unwrap())]);
    let body = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
    (StatusCode::UNAUTHORIZED, headers, Bytes::from_static(body.as_bytes()))
}

fn is_basic(header: &str, user: &str, password: &str) -> bool {
    header
        .strip_prefix("Basic ")
        .is_some_and(|text| STANDARD.decode(text).unwrap() == format!("{user}:{password}").as_bytes())
}

/// The repository in `/v2/<name>/…`.
fn repository(path: &str) -> &str {
    let path = path.trim_start_matches("/v2/");
    let end = ["/blobs/", "/manifests/", "/tags/", "/referrers/"].iter().filter_map(|part| path.find(part)).min();
    path.get(..end.unwrap_or(path.len())).unwrap()
}

/// The pairs of a query or form, decoded.
fn pairs(query: &str) -> Vec<(String, String)> {
    let url = reqwest::Url::parse(&format!("http://localhost/?{query}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

fn value<'q>(pairs: &'q [(String, String)], name: &str) -> Option<&'q str> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}
