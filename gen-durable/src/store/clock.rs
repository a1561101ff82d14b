//! The clock of stores whose database has none of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};

/// What time it is for a store in this process: the system's clock, or one that a test moves.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that shows `start` and stands still until it is [advanced](Self::advance). Clones are the same clock.
    #[must_use]
    pub fn manual(start: DateTime<Utc>) -> Self {
        Self(Some(Arc::new(AtomicI64::new(start.timestamp_micros()))))
    }

    /// Moves a manual clock on; the system's clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Some(micros) = &self.0 {
            micros.fetch_add(super::delay_micros(by), Ordering::AcqRel);
        }
    }

    /// Microseconds since 1970.
    pub(crate) fn micros(&self) -> i64 {
        match &self.0 {
            Some(micros) => micros.load(Ordering::Acquire),
            None => Utc::now().timestamp_micros(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(DateTime::UNIX_EPOCH);
        let same = clock.clone();
        assert_eq!(clock.micros(), 0);
        same.advance(Duration::from_secs(86_400));
        assert_eq!(clock.micros(), 86_400_000_000);
    }
}
