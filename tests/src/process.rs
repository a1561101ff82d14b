//! Worker processes: to be killed, frozen and thawed.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

/// A child process, killed when this value drops.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts what [`Database::child`](crate::Database::child) describes.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        // The other end of its input is ours alone: see `end_with_parent`.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Self { child })
    }

    /// Kills it with SIGKILL and waits until it is gone.
    ///
    /// # Panics
    ///
    /// When the operating system refuses.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child of ours can be killed");
        self.child.wait().expect("a child of ours can be waited for");
    }

    /// Freezes it with SIGSTOP.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Thaws it with SIGCONT.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Asks it to end with SIGTERM.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Whether it has ended by itself.
    ///
    /// # Panics
    ///
    /// When the operating system does not know it.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours can be waited for").is_some()
    }

    fn signal(&self, signal: &str) {
        // Its id cannot have been reused: it is ours to wait for, and we have not.
        let sent = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal} works");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child process: ends it as soon as its parent is gone, however that went.
pub fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}
