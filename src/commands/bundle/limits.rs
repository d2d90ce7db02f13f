//! What one archive may ask for: what `symseal bundle build` and `symseal publish` share.

use std::str::FromStr;

use clap::Args as ClapArgs;
use symseal_artifact::Limits;
use symseal_builder::SymbolBundleBuilder;

/// How much an archive among the inputs may ask for.
#[derive(ClapArgs)]
pub struct LimitArgs {
    /// Let one archive, with all that is in it, ask for more or less: members (1000000), depth (1), ratio (1000), total-bytes (64G),
    /// member-bytes (16G), path-bytes (4096), header-bytes (256M) or buffer-bytes (512M, a zip within a stream). K, M, G and T
    /// are powers of 1024. Repeat for more; docs/formats/inputs.md says what each bounds.
    #[arg(long, value_name = "NAME=NUMBER")]
    archive_limit: Vec<ArchiveLimit>,
}

impl LimitArgs {
    /// The builder that keeps to them.
    pub fn on(&self, builder: SymbolBundleBuilder) -> SymbolBundleBuilder {
        let mut limits = Limits::default();
        for limit in &self.archive_limit {
            limit.set(&mut limits);
        }
        builder.limits(limits)
    }
}

/// One limit: `member-bytes=32G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimit {
    name: &'static str,
    number: u64,
}

const NAMES: [&str; 8] =
    ["members", "depth", "ratio", "total-bytes", "member-bytes", "path-bytes", "header-bytes", "buffer-bytes"];

impl ArchiveLimit {
    fn set(self, limits: &mut Limits) {
        match self.name {
            "members" => limits.members = self.number,
            "depth" => limits.depth = u32::try_from(self.number).unwrap_or(u32::MAX),
            "ratio" => limits.ratio = self.number,
            "total-bytes" => limits.total_bytes = self.number,
            "member-bytes" => limits.member_bytes = self.number,
            "path-bytes" => limits.path_bytes = self.number,
            "header-bytes" => limits.header_bytes = self.number,
            _ => limits.buffer_bytes = self.number,
        }
    }
}

impl FromStr for ArchiveLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected NAME=NUMBER with a name out of {}, found {text:?}", NAMES.join(", "));
        let (name, number) = text.split_once('=').ok_or_else(expected)?;
        let name = NAMES.into_iter().find(|known| *known == name).ok_or_else(expected)?;
        let digits = number.trim_end_matches(['K', 'M', 'G', 'T']);
        let shift = match number.get(digits.len()..) {
            Some("") => 0,
            Some("K") => 10,
            Some("M") => 20,
            Some("G") => 30,
            Some("T") => 40,
            _ => return Err(expected()),
        };
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        Ok(Self { name, number: number.ok_or_else(expected)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_set_and_nothing_else() {
        let mut limits = Limits::default();
        for name in NAMES {
            let limit: ArchiveLimit = format!("{name}=3K").parse().unwrap();
            limit.set(&mut limits);
        }
        let all = 3 << 10;
        let expected = Limits {
            members: all,
            depth: 3 << 10,
            ratio: all,
            total_bytes: all,
            member_bytes: all,
            path_bytes: all,
            header_bytes: all,
            buffer_bytes: all,
            ..Limits::default()
        };
        assert_eq!(limits, expected);
        for wrong in ["members", "members=", "members=-1", "member=1", "members=1k", "members=1KK", "ratio=99999999T"] {
            assert!(wrong.parse::<ArchiveLimit>().is_err(), "{wrong}");
        }
    }
}
