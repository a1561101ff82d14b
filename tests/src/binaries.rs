//! Finds an installed PostgreSQL server.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directories in which packages keep one sub-directory per major version.
const VERSIONED: [&str; 2] = ["/usr/lib/postgresql", "/opt/homebrew/opt"];

/// The directory that holds `initdb`, `pg_ctl` and `postgres`.
///
/// `GEN_DURABLE_PG_BIN` chooses among several versions; otherwise what `pg_config` names comes first, then
/// the newest packaged version, then the `PATH`. Client packages bring `pg_config` without a server, so
/// every candidate must really hold the programs.
pub(crate) fn find() -> io::Result<PathBuf> {
    if let Some(chosen) = env::var_os("GEN_DURABLE_PG_BIN").filter(|chosen| !chosen.is_empty()) {
        let chosen = PathBuf::from(chosen);
        return if holds_a_server(&chosen) {
            Ok(chosen)
        } else {
            Err(missing(format!("GEN_DURABLE_PG_BIN={} holds no PostgreSQL server", chosen.display())))
        };
    }
    configured().into_iter().chain(packaged()).chain(on_path()).find(|dir| holds_a_server(dir)).ok_or_else(
        || {
            missing(
                "no PostgreSQL server found: set DATABASE_URL to one that may create databases, or install \
                 the server's package (Debian and Ubuntu: `apt-get install postgresql`; \
                 `scripts/test` does so by itself), or set GEN_DURABLE_PG_BIN to the directory of `initdb`"
                    .to_owned(),
            )
        },
    )
}

fn missing(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, text)
}

fn configured() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let directory = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(directory.trim()))
}

fn packaged() -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = VERSIONED
        .iter()
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flatten()
        .flatten()
        .filter_map(|entry| Some((version(&entry.file_name())?, entry.path().join("bin"))))
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, directory)| directory).collect()
}

/// The major version in a directory's name: `15`, `postgresql@15`.
fn version(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?;
    name.strip_prefix("postgresql@").unwrap_or(name).parse().ok()
}

fn on_path() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

fn holds_a_server(directory: &Path) -> bool {
    ["initdb", "pg_ctl", "postgres"].iter().all(|program| {
        fs::metadata(directory.join(program))
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_directory_names() {
        assert_eq!(version(OsStr::new("15")), Some(15));
        assert_eq!(version(OsStr::new("postgresql@17")), Some(17));
        assert_eq!(version(OsStr::new("openssl")), None);
    }

    #[test]
    fn a_directory_without_the_programs_is_no_server() {
        assert!(!holds_a_server(Path::new("/")));
    }
}
