//! Who comes in: whether a caller may do to a target what it asks for, and what it is told when it may not.

use axum::http::{HeaderMap, HeaderValue, Method, header};

use super::{Code, OciError, Target};
use crate::access::{Action, Caller};
use crate::app::App;
use crate::repositories::RepositoryName;

/// Lets a request through, or says why not.
///
/// Whoever may be able to show more is told (401) where to get a session that does; the answer is the same whether the
/// repository exists or not. To the holder of a token, and of a session of one, what the token may not read does not exist, and what it may not
/// write to is refused (403): another session would be refused too.
pub(crate) fn check(
    app: &App,
    caller: &Caller,
    target: &Target,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(), OciError> {
    let Some((name, action)) = done(target, method) else {
        // It shows what the caller may read, and to a session what it was asked for.
        let scope = "registry:catalog:*";
        let refused = caller.may_show_listing().then(|| challenge(app, headers, scope, insufficient(caller)));
        return refused.map_or(Ok(()), Err);
    };
    if caller.may_do(name, action) {
        return if action == Action::Pull { check_hidden(app, target) } else { Ok(()) };
    }
    if caller.may_show(name, action) {
        return Err(challenge(app, headers, &scope_of(name, action), insufficient(caller)));
    }
    if action == Action::Pull {
        return Err(OciError::new(
            Code::NameUnknown,
            format!("there is no repository {name} that this token may read"),
        ));
    }
    let message = format!("this token may not write to {name}: expected one with the grant write:{name}");
    Err(OciError::new(Code::DeniedToCaller, message))
}

/// What a request does, and to which repository; `None` for the list of them.
fn done<'a>(target: &'a Target, method: &Method) -> Option<(&'a RepositoryName, Action)> {
    match target {
        Target::Catalog => None,
        // The state of an upload is its writer's.
        Target::Upload(name, _) | Target::Uploads(name) => Some((name, Action::Push)),
        Target::Blob(name, _) | Target::Manifest(name, _) | Target::Tags(name) | Target::Referrers(name, _) => {
            let action = match *method {
                Method::GET | Method::HEAD => Action::Pull,
                Method::DELETE => Action::Delete,
                _ => Action::Push,
            };
            Some((name, action))
        }
    }
}

/// What a client is told to ask a session for. Whoever writes or deletes looks first at what is there.
fn scope_of(name: &RepositoryName, action: Action) -> String {
    let actions = match action {
        Action::Pull => "pull",
        Action::Push => "pull,push",
        Action::Delete => "pull,delete",
    };
    format!("repository:{name}:{actions}")
}

/// Nothing is given out of a repository while it is not known what of it is taken down.
fn check_hidden(app: &App, target: &Target) -> Result<(), OciError> {
    let (Target::Blob(name, _) | Target::Manifest(name, _)) = target else { return Ok(()) };
    if app.repositories.get(name).is_some_and(|repository| repository.is_hiding()) {
        let message = format!(
            "something in {name} was taken down and cannot be read at this moment, so that nobody knows what goes with it: try again"
        );
        return Err(OciError::away(message));
    }
    Ok(())
}

/// What is wrong with what a caller showed, where it did.
fn insufficient(caller: &Caller) -> Option<&'static str> {
    (!caller.showed_nothing()).then_some("insufficient_scope")
}

/// 401 to a session or token that does not hold, or no more: with the place where another is to be had, and for what. (RFC 6750, 3.1)
pub(crate) fn invalid_token(app: &App, method: &Method, path: &str, headers: &HeaderMap, message: String) -> OciError {
    let target = path.strip_prefix("/v2/").and_then(Target::parse).and_then(Result::ok);
    let scope = target.map_or_else(String::new, |target| {
        let done = done(&target, method);
        done.map_or_else(|| "registry:catalog:*".to_owned(), |(name, action)| scope_of(name, action))
    });
    OciError::new(Code::Unauthorized, message).with_headers(place_of_sessions(
        app,
        headers,
        &scope,
        Some("invalid_token"),
    ))
}

/// 401 with the place where a session is to be had, as registry clients look for it.
pub(crate) fn challenge(app: &App, headers: &HeaderMap, scope: &str, error: Option<&str>) -> OciError {
    let message = "expected a token (a user's name with the token as its password, or Authorization: Bearer)";
    OciError::new(Code::Unauthorized, message).with_headers(place_of_sessions(app, headers, scope, error))
}

fn place_of_sessions(app: &App, headers: &HeaderMap, scope: &str, error: Option<&str>) -> HeaderMap {
    let realm = app.own_url(headers);
    let service = realm.split_once("://").map_or(realm.as_str(), |(_, rest)| rest);
    let mut text = format!("Bearer realm=\"{realm}/api/v1/token\",service=\"{service}\"");
    if !scope.is_empty() {
        text.push_str(&format!(",scope=\"{scope}\""));
    }
    if let Some(error) = error {
        text.push_str(&format!(",error=\"{error}\""));
    }
    let mut answer = HeaderMap::new();
    if let Ok(text) = HeaderValue::try_from(text) {
        answer.insert(header::WWW_AUTHENTICATE, text);
    }
    answer
}
