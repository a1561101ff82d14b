//! Signals: on their way to an inbox, and in it.

use crate::id::InstanceId;

/// What an instance waited for and what it was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mail {
    /// Names of the signals that it waited for last.
    pub awaits: Vec<String>,
    /// Whether that wait timed out.
    pub timed_out: bool,
    /// The last signal that its step had been handed when it went to wait.
    pub seen: i64,
    /// What it was sent and has not consumed, in the order in which it was sent; those that it waited for before
    /// others where that is more than [`INBOX_LIMIT`].
    pub inbox: Vec<Letter>,
    /// Number of the last signal in the inbox, also when that is more than the step is handed.
    pub latest: i64,
}

/// The most signals that a step is handed.
pub const INBOX_LIMIT: u32 = 1_000;

/// A signal in an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Its number, which rises with each signal that its instance is sent.
    pub seq: i64,
    /// Name of the signal.
    pub name: String,
    /// The signal as JSON text.
    pub payload: String,
}

impl Mail {
    /// The signals that the step waited for: those that are there, or, when the wait timed out, those that were there
    /// when it began. One that comes after the time is up stays for a later wait.
    pub fn awaited(&self) -> impl Iterator<Item = &Letter> {
        self.inbox.iter().filter(|letter| {
            self.awaits.contains(&letter.name) && (!self.timed_out || letter.seq <= self.seen)
        })
    }

    /// The last signal that the step cannot be waiting for any more: it was handed those up to it, or would be, if there
    /// were not too many.
    #[must_use]
    pub fn handed(&self) -> i64 {
        if self.timed_out { self.seen } else { self.latest.max(self.seen) }
    }
}

/// Where a signal goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To this instance.
    Id(InstanceId),
    /// To the live instance with this correlation key.
    Key(String),
}

impl From<InstanceId> for Target {
    fn from(id: InstanceId) -> Self {
        Self::Id(id)
    }
}

impl From<String> for Target {
    fn from(key: String) -> Self {
        Self::Key(key)
    }
}

impl From<&str> for Target {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Key(key) => write!(f, "`{key}`"),
        }
    }
}

/// A signal to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSignal {
    /// Name of the machine that takes it.
    pub machine: String,
    /// Which of its instances.
    pub target: Target,
    /// Name of the signal.
    pub name: String,
    /// The signal as JSON text.
    pub payload: String,
    /// Makes sending it again a no-op, until the instance ends.
    pub dedup_key: Option<String>,
}

/// What became of a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// It is in the inbox.
    Stored {
        /// The queue on which its target became ready, if it was waiting for it.
        woke: Option<String>,
    },
    /// Its key was used before: nothing was changed.
    Repeated,
    /// Somebody's transaction holds the target; try again.
    Locked,
    /// No live instance is its target.
    NoTarget,
    /// Several live instances have the key.
    Ambiguous,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(awaits: &[&str], timed_out: bool, seen: i64, inbox: &[(i64, &str)]) -> Mail {
        let letter = |&(seq, name): &(i64, &str)| Letter { seq, name: name.into(), payload: "null".into() };
        Mail {
            awaits: awaits.iter().map(|name| (*name).into()).collect(),
            timed_out,
            seen,
            inbox: inbox.iter().map(letter).collect(),
            latest: inbox.last().map_or(0, |(seq, _)| *seq),
        }
    }

    fn awaited(mail: &Mail) -> Vec<i64> {
        mail.awaited().map(|letter| letter.seq).collect()
    }

    #[test]
    fn a_step_is_handed_the_signals_that_it_waited_for() {
        let mail = mail(&["a", "b"], false, 2, &[(1, "a"), (3, "c"), (4, "b")]);
        assert_eq!((awaited(&mail), mail.handed()), (vec![1, 4], 4));
    }

    #[test]
    fn what_comes_after_a_timeout_is_not_handed() {
        let mail = mail(&["a"], true, 2, &[(1, "a"), (4, "a")]);
        assert_eq!((awaited(&mail), mail.handed()), (vec![1], 2));
    }
}
