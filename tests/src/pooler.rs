//! PgBouncer in transaction mode between a test and its server.

use std::env;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;

use crate::Server;
use crate::cluster::{become_unprivileged, create_directory};

/// How long it may take until PgBouncer answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// Owns one PgBouncer: starts it, and ends it by its id at the end of standard input, which is that of the process
/// that wants it, however that went. `$1` its program, `$2` its directory.
const SUPERVISOR: &str = r#"
trap '' HUP INT PIPE
cd "$2" || exit 1
"$1" --quiet pgbouncer.ini >pgbouncer.out 2>&1 &
pid=$!
read -r end
kill "$pid"
wait "$pid"
cd / && rm -rf "$2"
"#;

/// A pooler in a process of its own; ends when it drops, and when this process ends in any way.
#[derive(Debug)]
pub struct Pooler {
    supervisor: Child,
    directory: PathBuf,
}

impl Pooler {
    /// A pooler in transaction mode that keeps at most `sessions` sessions of each database of a throwaway server.
    ///
    /// # Errors
    ///
    /// PgBouncer is not installed ([`ErrorKind::NotFound`]), or did not start: what it said is in the error.
    pub fn start(server: &Server, sessions: u32) -> io::Result<Self> {
        let program = find()?;
        let socket = server.directory().ok_or_else(|| io::Error::other("only for throwaway servers"))?;
        let directory = create_directory()?;
        let port = server.options("postgres").get_port();
        // `any`: whoever comes is let in, as the user of the server.
        let settings = format!(
            "[databases]\n* = host={} port={port} user=postgres\n[pgbouncer]\npool_mode = transaction\n\
             auth_type = any\nunix_socket_dir = {}\nlisten_port = {port}\ndefault_pool_size = {sessions}\n\
             max_client_conn = 200\n",
            socket.display(),
            directory.display(),
        );
        fs::write(directory.join("pgbouncer.ini"), settings)?;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(SUPERVISOR).arg("supervisor").arg(&program).arg(&directory);
        become_unprivileged(&mut shell, &directory)?;
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let pooler = Self { supervisor: shell.spawn()?, directory };
        pooler.wait_for(&pooler.directory.join(format!(".s.PGSQL.{port}")))?;
        Ok(pooler)
    }

    /// How to connect to a database of the server through the pooler.
    pub fn through(&self, database: &PgConnectOptions) -> PgConnectOptions {
        // PgBouncer refuses the default of the driver.
        database.clone().socket(&self.directory).extra_float_digits(None)
    }

    fn wait_for(&self, socket: &Path) -> io::Result<()> {
        let start = Instant::now();
        while !socket.exists() {
            if start.elapsed() > PATIENCE {
                let said = fs::read_to_string(self.directory.join("pgbouncer.out")).unwrap_or_default();
                return Err(io::Error::other(format!("pgbouncer did not start:\n{said}")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

/// The program, which Debian puts where only root's `PATH` leads.
fn find() -> io::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"].map(PathBuf::from))
        .map(|directory| directory.join("pgbouncer"))
        .find(|program| program.is_file())
        .ok_or_else(|| {
            io::Error::new(
                ErrorKind::NotFound,
                "pgbouncer is missing: install it (Debian and Ubuntu: `apt-get install pgbouncer`; `scripts/test` \
                 does so by itself)",
            )
        })
}
