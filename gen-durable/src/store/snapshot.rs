//! How instances stand.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::{InstanceId, WorkerId};

/// Where an instance stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Waits for its time.
    Scheduled,
    /// Waits for a worker.
    Ready,
    /// Set aside until a node can run its machine's version.
    Blocked,
    /// Owned by a worker.
    Executing,
    /// Waits for a signal.
    Waiting,
    /// Waits for its children to end.
    Joining,
    /// Finished with an output.
    Done,
    /// Failed for good.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl Status {
    /// The status as the store and people write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Blocked => "blocked",
            Self::Executing => "executing",
            Self::Waiting => "waiting",
            Self::Joining => "joining",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        use Status::{Blocked, Cancelled, Done, Executing, Failed, Joining, Ready, Scheduled, Waiting};
        [Scheduled, Ready, Blocked, Executing, Waiting, Joining, Done, Failed, Cancelled]
            .into_iter()
            .find(|status| status.as_str() == text)
    }

    /// Whether the instance has ended.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An instance as it stood when it was read.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The instance.
    pub id: InstanceId,
    /// Name of its machine.
    pub machine: String,
    /// Version of its machine.
    pub version: u32,
    /// Name of the step that runs next, runs now, or ran last.
    pub step: String,
    /// The state as JSON text.
    pub state: String,
    /// Where it stands.
    pub status: Status,
    /// The queue on which it runs.
    pub queue: String,
    /// Lower runs first.
    pub priority: i16,
    /// How many outcomes were committed.
    pub revision: i64,
    /// How many times the state's step was started and did not go on.
    pub attempt: u32,
    /// How many of those starts count against the limit.
    pub failures: u32,
    /// How many of those starts ended with the process.
    pub crashes: u32,
    /// Names of the signals that it waits for, or waited for last.
    pub awaits: Vec<String>,
    /// How many signals it was sent and has not consumed.
    pub inbox: u32,
    /// How many children of its fan-out have not ended.
    pub children_pending: u32,
    /// Its parent.
    pub parent: Option<InstanceId>,
    /// Its correlation key.
    pub correlation_key: Option<String>,
    /// Whether it executes and is asked to end.
    pub cancel_requested: bool,
    /// The worker that owns it or owned it last.
    pub worker: Option<WorkerId>,
    /// The output as JSON text, when it is done.
    pub output: Option<String>,
    /// Why it failed, or why its last start did.
    pub error: Option<String>,
    /// When it was inserted, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// From when on it may run, by the database's clock; for a wait, when it times out, if it does.
    pub eligible_at: Option<DateTime<Utc>>,
    /// When it ended, by the database's clock.
    pub finished_at: Option<DateTime<Utc>>,
}

/// How many instances stand alike.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// Name of the machine.
    pub machine: String,
    /// Version of the machine.
    pub version: u32,
    /// Name of the step.
    pub step: String,
    /// Where they stand.
    pub status: Status,
    /// How many.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_reads_back_from_its_text() {
        for status in [
            Status::Scheduled,
            Status::Ready,
            Status::Blocked,
            Status::Executing,
            Status::Waiting,
            Status::Joining,
            Status::Done,
            Status::Failed,
            Status::Cancelled,
        ] {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("lost"), None);
    }
}
