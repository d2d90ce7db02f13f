//! What is wrong with a configuration.

use std::path::PathBuf;

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}: expected the server's configuration in TOML", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no TOML, or holds what the server does not know.
    #[error("{path}: {problem}", path = .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// Line, column and what is wrong there.
        problem: String,
    },
    /// A variable of the environment does not say what its setting takes.
    #[error("{name}: {problem}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A setting contradicts another.
    #[error("{setting}: {problem}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
}
