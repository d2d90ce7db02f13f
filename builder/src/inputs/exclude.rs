//! Files that are left out although they lie among the inputs.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Patterns of what is left out.
///
/// A pattern is compared with a file's place as reports name it (`release/app.deb!/usr/bin/app`), and with what of it follows a slash:
/// `*.so.1` leaves out every file of such a name, `usr/lib/debug/**` what lies there in any archive. What lies in a directory or
/// archive that a pattern names is left out too. `*` and `?` do not match a slash, `**` does; `[ab]` and `{a,b}` are known, and a
/// backslash takes a character as it is. A pattern that ends in a slash means directories and archives alone, `./` before one means nothing.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    globs: Vec<String>,
    set: GlobSet,
    /// Of each pattern, whether it means directories and archives alone.
    of_directories: Vec<bool>,
}

/// A pattern that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{glob:?} is no pattern of files: {problem}")]
pub struct ParseExcludeError {
    /// The text.
    pub glob: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Exclude {
    /// From patterns, in any order.
    ///
    /// # Errors
    /// [`ParseExcludeError`] names the first that is none.
    pub fn new(globs: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, ParseExcludeError> {
        let globs: Vec<String> = globs.into_iter().map(Into::into).collect();
        let mut set = GlobSetBuilder::new();
        let mut of_directories = Vec::new();
        for glob in &globs {
            let wrong = |problem: String| ParseExcludeError { glob: glob.clone(), problem };
            if glob.is_empty() {
                return Err(wrong("it is empty".to_owned()));
            }
            let mut bare = glob.trim_end_matches('/');
            while let Some(rest) = bare.strip_prefix("./") {
                bare = rest.trim_start_matches('/');
            }
            if bare.is_empty() || bare == "." {
                return Err(wrong("it means everything".to_owned()));
            }
            of_directories.push(glob.ends_with('/'));
            let anywhere = if bare.starts_with('/') { bare.to_owned() } else { format!("**/{bare}") };
            let parsed = GlobBuilder::new(&anywhere).literal_separator(true).backslash_escape(true).build();
            set.add(parsed.map_err(|error| wrong(error.kind().to_string()))?);
        }
        let set =
            set.build().map_err(|error| ParseExcludeError { glob: globs.join(" "), problem: error.to_string() })?;
        Ok(Self { globs, set, of_directories })
    }

    /// The patterns.
    pub fn globs(&self) -> &[String] {
        &self.globs
    }

    /// The first pattern that leaves out the file at `place`, or a directory or archive around it.
    pub(crate) fn matching(&self, place: &str) -> Option<&str> {
        self.first(place, false)
    }

    /// The same of a directory.
    pub(crate) fn matching_directory(&self, place: &str) -> Option<&str> {
        self.first(place, true)
    }

    fn first(&self, place: &str, is_directory: bool) -> Option<&str> {
        if self.globs.is_empty() {
            return None;
        }
        let around =
            place.match_indices('/').filter_map(|(at, _)| place.get(..at)).map(|part| part.trim_end_matches('!'));
        let around = around.flat_map(|part| self.set.matches(part));
        let means_files = |glob: &usize| is_directory || self.of_directories.get(*glob) == Some(&false);
        let own = self.set.matches(place).into_iter().filter(means_files);
        self.globs.get(around.chain(own).min()?).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(glob: &str, place: &str, expected: bool) {
        assert_eq!(Exclude::new([glob]).unwrap().matching(place), expected.then_some(glob), "{glob} {place}");
    }

    #[test]
    fn a_pattern_means_names_tails_directories_and_archives() {
        let place = "release/app.deb!/usr/lib/debug/.build-id/ab/cd.debug";
        for glob in [
            "*.debug",
            "cd.debug",
            "usr/lib/debug/**",
            "usr/lib",
            "debug",
            "app.deb",
            "release",
            "ab/*",
            "*.{deb,rpm}",
            place,
        ] {
            check(glob, place, true);
        }
        for glob in ["lib/*.debug", "*.so", "d.debug", "/usr/**", "App.deb"] {
            check(glob, place, false);
        }
        check("/srv/*", "/srv/app", true);
        check("/srv/*", "/other/srv/app", false);
        for glob in ["debug/", "./debug", "././usr/lib/", "app.deb/", "./release/app.deb!/usr/", "lib//"] {
            check(glob, place, true);
        }
        for glob in ["cd.debug/", "./cd", "./release/usr"] {
            check(glob, place, false);
        }
        let exclude = Exclude::new(["cd.debug/"]).unwrap();
        assert_eq!(exclude.matching_directory(place), Some("cd.debug/"));
        check("/srv/app/", "/srv/app/x", true);
        check(r"a\*b", "x/a*b", true);
        check(r"a\*b", "x/aab", false);
    }

    #[test]
    fn no_pattern_leaves_out_nothing_and_a_wrong_one_is_told() {
        assert_eq!(Exclude::default().matching("a"), None);
        for glob in ["", "a[", "{a", "/", "./", "."] {
            assert_eq!(Exclude::new(["x", glob]).unwrap_err().glob, glob);
        }
    }
}
