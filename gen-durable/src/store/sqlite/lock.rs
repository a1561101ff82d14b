//! Which engine may run the queues of a file: whoever holds the lock on the file beside it.
//!
//! The operating system drops the lock with its holder, however that ends. It is not taken on the database itself:
//! closing any handle of that file would drop SQLite's own locks.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The right to run the queues of a file, until it is dropped.
#[derive(Debug)]
pub(super) struct QueueLock(#[expect(dead_code, reason = "held, not read")] File);

/// Takes the lock for `holder`, or says who has it.
pub(super) fn take(database: &Path, holder: &str) -> io::Result<Result<QueueLock, String>> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path(database))?;
    match file.try_lock() {
        Ok(()) => {
            // For the message of whoever comes next; the lock alone counts.
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(holder.as_bytes())?;
            Ok(Ok(QueueLock(file)))
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder)?;
            Ok(Err(if holder.is_empty() { "unknown".into() } else { holder }))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// One lock whatever name leads to the database.
fn path(database: &Path) -> PathBuf {
    let mut path = database.canonicalize().unwrap_or_else(|_| database.to_owned()).into_os_string();
    path.push(".lock");
    path.into()
}
