//! What the connection that writes may do while a step has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sqlx::SqliteConnection;

/// How many instructions of SQLite's machine pass before a statement notices that nobody wants it any more.
const STRIDE: i32 = 10_000;

/// Who has a connection; its thread asks before it commits, and while a statement runs.
#[derive(Debug, Clone)]
pub(super) struct Leash(Arc<AtomicU8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Holder {
    /// We have it.
    Store,
    /// A step has it: nothing is committed. SQLite rolls a transaction back by itself after some errors, and what a step
    /// writes after that would be committed at once, without its outcome.
    Step,
    /// A step had it, and was dropped: what still runs ends.
    Nobody,
}

impl Leash {
    /// Puts a connection on a leash that is ours.
    pub(super) async fn on(connection: &mut SqliteConnection) -> sqlx::Result<Self> {
        let leash = Self(Arc::new(AtomicU8::new(Holder::Store as u8)));
        let mut handle = connection.lock_handle().await?;
        let held = leash.clone();
        handle.set_commit_hook(move || held.is(Holder::Store));
        let held = leash.clone();
        handle.set_progress_handler(STRIDE, move || !held.is(Holder::Nobody));
        drop(handle);
        Ok(leash)
    }

    pub(super) fn hand_to(&self, holder: Holder) {
        self.0.store(holder as u8, Ordering::Release);
    }

    fn is(&self, holder: Holder) -> bool {
        self.0.load(Ordering::Acquire) == holder as u8
    }
}
