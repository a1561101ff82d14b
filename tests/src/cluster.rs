//! A throwaway cluster and the shell that outlives us by a moment to remove it.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

use crate::binaries;

/// A cluster in a directory of its own, removed when this value drops or its process ends in any way.
#[derive(Debug)]
pub(crate) struct Cluster {
    directory: PathBuf,
    supervisor: Mutex<Supervisor>,
}

/// What the supervising shell is told to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// Create the cluster's files.
    Make,
    /// Start the server and wait until it answers.
    Start,
    /// Stop the server in good order: connections are cut, a checkpoint is written.
    Stop,
    /// Stop the server as a crash would: the next start recovers from the log.
    Kill,
}

#[derive(Debug)]
struct Supervisor {
    shell: Child,
    /// `None` once dropped: the end of its input is the shell's order to clean up.
    pipes: Option<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Cluster {
    /// Makes and starts a cluster whose `postgresql.conf` ends with `settings`.
    pub(crate) fn start(settings: &[(String, String)]) -> io::Result<Self> {
        let binaries = binaries::find()?;
        let directory = create_directory()?;
        let supervisor = Mutex::new(Supervisor::spawn(&binaries, &directory, settings)?);
        let cluster = Self { directory, supervisor };
        cluster.order(Order::Make)?;
        cluster.order(Order::Start)?;
        Ok(cluster)
    }

    /// The directory of the data, the socket and the logs.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Gives an order and waits until it is carried out.
    pub(crate) fn order(&self, order: Order) -> io::Result<()> {
        let answer = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).ask(order)?;
        if answer == "ok" {
            return Ok(());
        }
        let logs = ["supervisor.log", "server.log"].map(|name| {
            let text = fs::read_to_string(self.directory.join(name)).unwrap_or_default();
            last_lines(&text, 15)
        });
        Err(io::Error::other(format!("the throwaway server did not {order:?}:\n{}", logs.join("\n"))))
    }
}

impl Supervisor {
    fn spawn(binaries: &Path, directory: &Path, settings: &[(String, String)]) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(include_str!("supervisor.sh")).arg("supervisor.sh").arg(binaries).arg(directory);
        shell.arg(format!("unix_socket_directories = {}", quoted(&directory.to_string_lossy())));
        shell.args(settings.iter().map(|(name, value)| format!("{name} = {}", quoted(value))));
        become_unprivileged(&mut shell, directory)?;
        // Its own process group, so that an interrupt from the terminal ends us and not the cleaning up.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // The standard library opens these pipes close-on-exec: no other child of ours holds them open.
        let mut shell = shell.spawn()?;
        let pipes = shell.stdin.take().zip(shell.stdout.take().map(BufReader::new));
        Ok(Self { shell, pipes })
    }

    fn tell(&mut self, order: Order) -> io::Result<&mut impl BufRead> {
        let word = match order {
            Order::Make => "make",
            Order::Start => "start",
            Order::Stop => "stop",
            Order::Kill => "kill",
        };
        let (orders, answers) = self.pipes.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(orders, "{word}")?;
        Ok(answers)
    }

    fn ask(&mut self, order: Order) -> io::Result<String> {
        let mut answer = String::new();
        self.tell(order)?.read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.pipes.take());
        let _ = self.shell.wait();
    }
}

/// Makes a private directory under `/tmp`, whatever `TMPDIR` says: the path of a socket must stay under
/// about 100 bytes, and an unprivileged user must be able to enter and remove it.
pub(crate) fn create_directory() -> io::Result<PathBuf> {
    let directory = PathBuf::from(format!("/tmp/gen-durable-{}", Uuid::now_v7().simple()));
    DirBuilder::new().mode(0o700).create(&directory)?;
    Ok(directory)
}

/// PostgreSQL and PgBouncer refuse to run as root, so root's run as `postgres`, or else as `nobody`.
pub(crate) fn become_unprivileged(shell: &mut Command, directory: &Path) -> io::Result<()> {
    if fs::metadata(directory)?.uid() != 0 {
        return Ok(());
    }
    let (uid, gid) = ["postgres", "nobody"]
        .iter()
        .find_map(|user| Some((id_of("-u", user)?, id_of("-g", user)?)))
        .ok_or_else(|| {
            io::Error::other("running as root needs a user `postgres` or `nobody` for the server")
        })?;
    chown(directory, Some(uid), Some(gid))?;
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    shell.uid(uid).gid(gid);
    Ok(())
}

fn id_of(kind: &str, user: &str) -> Option<u32> {
    let output = Command::new("id").args([kind, user]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// A value as `postgresql.conf` wants it.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_that_dies_while_the_cluster_is_made_leaves_nothing() {
        let binaries = binaries::find().expect("a server is installed");
        let directory = create_directory().expect("a directory");
        let mut supervisor = Supervisor::spawn(&binaries, &directory, &[]).expect("it starts");
        supervisor.tell(Order::Make).expect("it listens");
        drop(supervisor);
        assert!(!directory.exists());
    }

    #[test]
    fn settings_are_quoted() {
        assert_eq!(quoted("on"), "'on'");
        assert_eq!(quoted(r"it's a \"), r"'it''s a \\'");
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        assert_eq!(last_lines("1\n2\n3", 2), "2\n3");
        assert_eq!(last_lines("1", 2), "1");
    }
}
