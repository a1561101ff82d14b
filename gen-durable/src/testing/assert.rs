//! Assertions that say what an instance is doing instead.

use std::fmt::Write;
use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use super::engine::TestEngine;
use crate::engine::Handle;
use crate::machine::Machine;
use crate::store::{Snapshot, Status};

impl TestEngine {
    /// Asserts that an instance is done, and returns its output.
    ///
    /// # Panics
    ///
    /// When it is not, with its state, attempt, last error and what it waits for.
    #[track_caller]
    pub fn assert_done<'a, M: Machine>(
        &'a self,
        handle: &'a Handle<M>,
    ) -> impl Future<Output = M::Output> + Send + 'a {
        let caller = Location::caller();
        async move {
            let snapshot = self.expect(handle, Status::Done, caller).await;
            let output = snapshot.output.as_deref().unwrap_or("null");
            serde_json::from_str(output).unwrap_or_else(|error| {
                panic!("the output {output} is not what `{}` yields: {error} (at {caller})", M::NAME)
            })
        }
    }

    /// Asserts that an instance failed, and returns the reason.
    ///
    /// # Panics
    ///
    /// As [`assert_done`](Self::assert_done).
    #[track_caller]
    pub fn assert_failed<'a, M: Machine>(
        &'a self,
        handle: &'a Handle<M>,
    ) -> impl Future<Output = String> + Send + 'a {
        let caller = Location::caller();
        async move { self.expect(handle, Status::Failed, caller).await.error.unwrap_or_default() }
    }

    /// Asserts that an instance waits, for its time, a signal or its children, and returns how it stands.
    ///
    /// # Panics
    ///
    /// As [`assert_done`](Self::assert_done).
    #[track_caller]
    pub fn assert_waiting<'a, M: Machine>(
        &'a self,
        handle: &'a Handle<M>,
    ) -> impl Future<Output = Snapshot> + Send + 'a {
        let caller = Location::caller();
        let waits = |status| matches!(status, Status::Scheduled | Status::Waiting | Status::Joining);
        async move {
            let snapshot = self.look(handle, caller).await;
            assert!(
                waits(snapshot.status),
                "instance {} waits for nothing (at {caller}){}",
                handle.id(),
                self.describe(&snapshot)
            );
            snapshot
        }
    }

    /// Asserts that an instance has a status, and returns how it stands.
    ///
    /// # Panics
    ///
    /// As [`assert_done`](Self::assert_done).
    #[track_caller]
    pub fn assert_status<'a, M: Machine>(
        &'a self,
        handle: &'a Handle<M>,
        status: Status,
    ) -> impl Future<Output = Snapshot> + Send + 'a {
        let caller = Location::caller();
        async move { self.expect(handle, status, caller).await }
    }

    /// Asserts that an instance is in a state, and returns it: `engine.assert_in(&handle, "ship")`.
    ///
    /// # Panics
    ///
    /// When it is in another one, as [`assert_done`](Self::assert_done), or when its state does not decode.
    #[track_caller]
    pub fn assert_in<'a, M: Machine>(
        &'a self,
        handle: &'a Handle<M>,
        step: &'a str,
    ) -> impl Future<Output = M> + Send + 'a {
        let caller = Location::caller();
        async move {
            let snapshot = self.look(handle, caller).await;
            assert!(
                snapshot.step == step,
                "instance {} is not in step `{step}` (at {caller}){}",
                handle.id(),
                self.describe(&snapshot)
            );
            snapshot.decode().unwrap_or_else(|error| panic!("{error} (at {caller})"))
        }
    }

    async fn expect<M: Machine>(
        &self,
        handle: &Handle<M>,
        status: Status,
        caller: &Location<'_>,
    ) -> Snapshot {
        let snapshot = self.look(handle, caller).await;
        assert!(
            snapshot.status == status,
            "instance {} is not {status} (at {caller}){}",
            handle.id(),
            self.describe(&snapshot)
        );
        snapshot
    }

    async fn look<M: Machine>(&self, handle: &Handle<M>, caller: &Location<'_>) -> Snapshot {
        match self.get(handle.id()).await {
            Ok(Some(snapshot)) => snapshot,
            Ok(None) => panic!("there is no instance {}, or not any longer (at {caller})", handle.id()),
            Err(error) => panic!("instance {} cannot be read: {error} (at {caller})", handle.id()),
        }
    }

    /// How an instance stands, line by line.
    fn describe(&self, snapshot: &Snapshot) -> String {
        let Snapshot { machine, version, queue, step, status, attempt, failures, state, .. } = snapshot;
        let mut text = format!(
            "\n  it is {status} in step `{step}` of `{machine}` version {version}, attempt {attempt} ({failures} count \
             against its limit)\n  state: {state}"
        );
        if let Some(output) = &snapshot.output {
            let _ = write!(text, "\n  output: {output}");
        }
        if let Some(error) = &snapshot.error {
            let _ = write!(text, "\n  last error: {error}");
        }
        match status {
            Status::Waiting => {
                let _ = write!(text, "\n  it waits for a signal: {}", snapshot.awaits.join(" or "));
                self.describe_time(&mut text, snapshot);
            }
            Status::Joining => {
                let _ = write!(text, "\n  it waits for {} children to end", snapshot.children_pending);
            }
            Status::Scheduled => self.describe_time(&mut text, snapshot),
            Status::Ready if !self.inline.runs(machine, *version) => {
                let _ = write!(text, "\n  it waits for an engine with its machine: `.register(...)` it");
            }
            Status::Ready if !self.inline.queues().contains(queue) => {
                let _ = write!(text, "\n  it waits for an engine with its queue: add `.queue({queue:?})`");
            }
            Status::Ready => text.push_str("\n  it waits to be run: call `drain` or `run_ready`"),
            _ => {}
        }
        text
    }

    /// When its time comes, if it does.
    fn describe_time(&self, text: &mut String, snapshot: &Snapshot) {
        let Some(eligible_at) = snapshot.eligible_at else { return };
        let _ = write!(text, "\n  its time comes at {eligible_at}");
        if let Some(now) = self.time.now() {
            let left = eligible_at.timestamp_micros().saturating_sub(now);
            let _ = write!(text, ", in {:?}", Duration::from_micros(left.unsigned_abs()));
        }
    }
}
