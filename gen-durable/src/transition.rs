//! Outcomes without their types: what a store commits.

use std::time::Duration;

use crate::outcome::storable_text;
use crate::store::{Joined, NewInstance, Status};

/// An outcome without its types: what the store commits.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// Go to the state of another step; failures are forgotten.
    Next {
        /// Name of the step.
        step: &'static str,
        /// The state as JSON text.
        state: String,
        /// Time from the commit until the step may run.
        delay: Duration,
        /// Whether the step may run ahead, if the outcome says so.
        inline: Option<bool>,
    },
    /// Wait for one of a set of signals, then go to the state of another step.
    Wait {
        /// Name of the step.
        step: &'static str,
        /// The state as JSON text.
        state: String,
        /// Names of the signals.
        signals: Vec<&'static str>,
        /// Time from the commit until the wait is over in any case.
        timeout: Option<Duration>,
        /// Signals up to this number that the step waited for do not end the wait: it has seen them.
        seen: i64,
    },
    /// Insert children, wait until all have ended, then go to the state of another step.
    FanOut {
        /// Name of the step.
        step: &'static str,
        /// The state as JSON text.
        state: String,
        /// The children.
        children: Vec<Child>,
    },
    /// Run the same step again.
    Retry {
        /// A new state as JSON text, or the stored one.
        state: Option<String>,
        /// Time from the commit until the step may run.
        after: Duration,
        /// Why the step failed, if it did.
        error: Option<String>,
        /// Whether this start counts against the limit of the retry policy: it was the policy that asked.
        counted: bool,
    },
    /// Finished.
    Done {
        /// The output as JSON text.
        output: String,
    },
    /// Failed for good.
    Stop {
        /// Why.
        reason: String,
        /// Whether its live children are cancelled.
        cascade: bool,
    },
    /// Cancelled: somebody asked for it while the step ran.
    Cancel,
    /// Committed already, by the step itself.
    Committed(Committed),
}

/// An outcome that a step committed in its own transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Committed {
    /// The outcome.
    pub transition: Box<Transition>,
    /// Where the instance stands now.
    pub status: Status,
    /// Whether another node waits for the result.
    pub watched: bool,
    /// What it did to the instance's parent.
    pub joined: Joined,
}

/// A child to insert.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    /// Name of its machine.
    pub machine: &'static str,
    /// Version of its machine.
    pub version: u32,
    /// The instance; the id of its machine is filled in before it goes to the store.
    pub instance: NewInstance,
}

impl Transition {
    /// Failed for good, for a reason that is cut to what is stored.
    pub(crate) fn stop(reason: String) -> Self {
        Self::Stop { reason: storable_text(reason), cascade: false }
    }

    /// Name of the kind of outcome, as events and errors show it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Next { .. } => "next",
            Self::Wait { .. } => "wait",
            Self::FanOut { .. } => "fan-out",
            Self::Retry { .. } => "retry",
            Self::Done { .. } => "done",
            Self::Stop { .. } => "stop",
            Self::Cancel => "cancel",
            Self::Committed(committed) => committed.transition.kind(),
        }
    }

    /// Whether the instance ends with this outcome.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Committed(committed) => committed.transition.is_terminal(),
            transition => matches!(transition, Self::Done { .. } | Self::Stop { .. } | Self::Cancel),
        }
    }

    /// Bytes of text that this outcome carries to the store.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Next { state, .. } | Self::Wait { state, .. } => state.len(),
            Self::FanOut { state, children, .. } => {
                state.len() + children.iter().map(|child| child.instance.size()).sum::<usize>()
            }
            Self::Retry { state, error, .. } => {
                state.as_deref().map_or(0, str::len) + error.as_deref().map_or(0, str::len)
            }
            Self::Done { output } => output.len(),
            Self::Stop { reason, .. } => reason.len(),
            Self::Cancel | Self::Committed(_) => 0,
        }
    }
}
