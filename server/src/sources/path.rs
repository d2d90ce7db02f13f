//! Paths of source files, as debuginfod compares them.

/// The path without `.`, `..` and doubled slashes (RFC 3986, section 5.2.4, and `//` as `/`); what `..` would take from above the
/// beginning is nothing.
pub(crate) fn canonical(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let start = if path.starts_with('/') { "/" } else { "" };
    format!("{start}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_doubled_slashes_go() {
        for (path, expected) in [
            ("/usr/src/a.c", "/usr/src/a.c"),
            ("/a b/../c++//x#y%z", "/c++/x#y%z"),
            ("/./usr/./src/../a.c", "/usr/a.c"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("./csu/x.c", "csu/x.c"),
            ("../x.c", "x.c"),
            ("/", "/"),
            ("", ""),
        ] {
            assert_eq!(canonical(path), expected, "{path}");
            assert_eq!(canonical(expected), expected);
        }
    }
}
