//! What the disk of the data directory has left, against what the configuration lets come to it.

use std::path::Path;

use rustix::fs::{StatVfs, statvfs};

use super::Finding;
use crate::config::Config;

/// With less than this left, in bytes, a few uploads fill the disk.
const LOW_BYTES: u64 = 1 << 30;

/// And with less than this part of it, in percent.
const LOW_PERCENT: u64 = 5;

pub(super) fn look(config: &Config) -> Vec<Finding> {
    // Where the directory is yet to be made, the nearest one above it that is there.
    let Some(place) = config.data.ancestors().find(|place| place.is_dir()).or_else(|| Some(Path::new("."))) else {
        return Vec::new();
    };
    match statvfs(place) {
        Ok(disk) => {
            let disk = Disk::of(&disk);
            vec![room(config, &disk), inodes(&disk)]
        }
        Err(error) => vec![Finding::skipped("data.room", format!("{}: {error}", place.display()))],
    }
}

/// A file system, as far as it matters here.
#[derive(Debug, Clone, Copy)]
struct Disk {
    bytes: u64,
    free_bytes: u64,
    /// Files that it can have; 0 where it counts none.
    files: u64,
    free_files: u64,
}

impl Disk {
    fn of(disk: &StatVfs) -> Self {
        Self {
            bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
            free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
            files: disk.f_files,
            free_files: disk.f_favail,
        }
    }
}

fn room(config: &Config, disk: &Disk) -> Finding {
    const ID: &str = "data.room";
    let found = format!("{} of {} are free", size(disk.free_bytes), size(disk.bytes));
    if disk.free_bytes == 0 {
        return Finding::problem(
            ID,
            found,
            "free space, or take a larger disk: nothing can be pushed, and the database may stop",
        );
    }
    if disk.free_bytes < LOW_BYTES.max(disk.bytes / 100 * LOW_PERCENT) {
        return Finding::warning(ID, found, "free space (retention, symseal store gc), or take a larger disk");
    }
    if let Some(upload) = config.limits.upload.filter(|upload| *upload > disk.free_bytes) {
        let found = format!("{found}, and limits.upload lets {} come at once", size(upload));
        return Finding::warning(ID, found, "lower limits.upload, or take a larger disk");
    }
    // Of an object store the disk has a part alone.
    let (what, wanted) = match &config.blobs {
        Some(blobs) => ("s3.cache_mib", blobs.cache_bytes),
        None => ("the quotas", config.quotas.iter().filter_map(|quota| quota.bytes).fold(0, u64::saturating_add)),
    };
    if wanted > disk.bytes {
        let found = format!("{found}, and {what} let {} be kept", size(wanted));
        return Finding::warning(ID, found, format!("lower {what}, or take a larger disk: it is full before they are"));
    }
    Finding::ok(ID, found)
}

fn inodes(disk: &Disk) -> Finding {
    const ID: &str = "data.inodes";
    if disk.files == 0 {
        return Finding::skipped(ID, "this file system does not count the files that it can have");
    }
    let found = format!("{} more files can be made, of {}", disk.free_files, disk.files);
    let advice = "a blob is a file, and so is each link of a repository: free some (symseal store gc), or take a file system with more inodes";
    if disk.free_files == 0 {
        Finding::problem(ID, found, advice)
    } else if disk.free_files < disk.files / 100 * LOW_PERCENT {
        Finding::warning(ID, found, advice)
    } else {
        Finding::ok(ID, found)
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{bytes} bytes"),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BLOB_SILENCE, BlobsConfig, QuotaConfig};
    use crate::doctor::Standing;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_disk_that_is_full_or_nearly_so_is_told() {
        let config = Config::new("data", ([127, 0, 0, 1], 0).into());
        let disk = Disk { bytes: 100 * GIB, free_bytes: 50 * GIB, files: 1000, free_files: 500 };
        let check = |disk: Disk, expected: [Standing; 2]| {
            let found = [room(&config, &disk).standing, inodes(&disk).standing];
            assert_eq!(found, expected, "{disk:?}");
        };
        check(disk, [Standing::Ok, Standing::Ok]);
        check(Disk { free_bytes: 4 * GIB, free_files: 40, ..disk }, [Standing::Warning, Standing::Warning]);
        check(Disk { free_bytes: 0, free_files: 0, ..disk }, [Standing::Problem, Standing::Problem]);
        check(Disk { files: 0, free_files: 0, ..disk }, [Standing::Ok, Standing::Skipped]);
    }

    #[test]
    fn what_the_configuration_lets_come_is_held_against_the_disk() {
        let disk = Disk { bytes: 100 * GIB, free_bytes: 50 * GIB, files: 0, free_files: 0 };
        let mut config = Config::new("data", ([127, 0, 0, 1], 0).into());
        let mut check = |expected: Standing, part: &str, change: &dyn Fn(&mut Config)| {
            change(&mut config);
            let found = room(&config, &disk);
            assert!(found.standing == expected && found.found.contains(part), "{found:?}");
        };
        let quota = |bytes| QuotaConfig { prefix: "*".parse().unwrap(), bytes: Some(bytes), bundles: None };
        check(Standing::Ok, "free", &|config| config.limits.upload = Some(10 * GIB));
        check(Standing::Warning, "limits.upload", &|config| config.limits.upload = Some(60 * GIB));
        check(Standing::Ok, "free", &|config| config.limits.upload = None);
        check(Standing::Ok, "free", &|config| config.quotas = vec![quota(60 * GIB)]);
        check(Standing::Warning, "the quotas", &|config| config.quotas.push(quota(60 * GIB)));
        let blobs = |cache_bytes| BlobsConfig {
            url: "s3://b".parse().unwrap(),
            endpoint: None,
            region: None,
            ca: None,
            silence: BLOB_SILENCE,
            cache_bytes,
        };
        check(Standing::Ok, "free", &|config| config.blobs = Some(blobs(16 * GIB)));
        check(Standing::Warning, "s3.cache_mib", &|config| config.blobs = Some(blobs(160 * GIB)));
    }
}
