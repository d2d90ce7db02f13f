//! What is asked of other symbol servers: the path of symsrv and SSQP, as the client has it.

use axum::http::{HeaderMap, Method};
use axum::response::Response;
use symseal_module::DebugId;

use super::Target;
use crate::app::App;
use crate::debug_files::{FileKind, Key};
use crate::endpoints::upstream_file;
use crate::upstream::{Expected, Hops, Wanted};

/// GET or HEAD. None where there are no other servers, or this is nothing to ask them.
pub(super) async fn answer(
    app: &App,
    method: &Method,
    path: &str,
    request: &HeaderMap,
    target: &Target,
    hops: &Hops,
) -> Option<Response> {
    let wanted = wanted(path, target)?;
    Some(upstream_file(app, app.symbol_upstreams.get()?, (method, request), wanted, hops).await)
}

fn wanted(path: &str, target: &Target) -> Option<Wanted> {
    // The folders of a UUID are lldb's, and no symbol server has them.
    let id = path.split('/').nth(1)?;
    let expected = match &target.key {
        Key::Id(DebugId::BuildId(_)) | Key::Breakpad { .. } if target.kind == FileKind::SymbolTable => return None,
        Key::Id(debug_id) if target.kind == FileKind::Executable => Expected::Executable(debug_id.clone()),
        Key::Id(debug_id) => Expected::Debuginfo(debug_id.clone()),
        Key::Image(_) => Expected::Image(id.to_ascii_lowercase()),
        Key::Breakpad { .. } => return None,
    };
    Wanted::of_symbols(path, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_symbol_servers_are_passed_on_and_none_with_another_path_in_it() {
        let wanted = |path: &str| wanted(path, &Target::parse(path)?);
        let pdb = wanted("App.pdb/D6FEA1B2C3D4E5F60718293A4B5C6D7E1/app.pdb").unwrap();
        assert_eq!(pdb.expected, Expected::Debuginfo("D6FEA1B2C3D4E5F60718293A4B5C6D7E-1".parse().unwrap()));
        let image = wanted("app.exe/5F3A1B2C1f000/app.exe").unwrap();
        assert_eq!(image.expected, Expected::Image("5f3a1b2c1f000".into()));
        assert!(wanted("a/elf-buildid-0102030405060708090a0b0c0d0e0f1011121314/a").is_some());
        for path in [
            "D6FE/A1B2/C3D4/E5F6/0718/293A4B5C6D7E",
            "../5F3A1B2C1f000/..",
            "%2e%2e/5F3A1B2C1f000/%2e%2e",
            "a%2fb/5F3A1B2C1f000/a%2fb",
        ] {
            assert!(wanted(path).is_none(), "{path}");
        }
    }
}
