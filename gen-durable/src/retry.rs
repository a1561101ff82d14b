//! How often a failing step is started, and how long it rests in between.

use std::time::Duration;

/// How often a step may be started, and how long it rests between two starts.
///
/// The limit counts starts, the first one included, whether they end by error, panic, timeout or a
/// crash of the process. A committed `next` begins a new count.
///
/// ```
/// use std::time::Duration;
/// use gen_durable::RetryPolicy;
///
/// let policy = RetryPolicy::attempts(5).exponential(Duration::from_secs(2), Duration::from_secs(60));
/// assert_eq!(policy.max_attempts(), 5);
/// assert_eq!(policy.backoff(0), Duration::from_secs(2));
/// assert_eq!(policy.backoff(40), Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    max_attempts: u32,
    backoff: Backoff,
}

#[derive(Debug, Clone, Copy)]
enum Backoff {
    Exponential { first: Duration, max: Duration },
    Constant(Duration),
    Function(fn(u32) -> Duration),
}

impl RetryPolicy {
    /// At most `max_attempts` starts (0 is taken as 1), resting `min(1 s * 2^attempt, 5 min)` in between.
    #[must_use]
    pub const fn attempts(max_attempts: u32) -> Self {
        let max_attempts = if max_attempts == 0 { 1 } else { max_attempts };
        let backoff = Backoff::Exponential { first: Duration::from_secs(1), max: Duration::from_secs(300) };
        Self { max_attempts, backoff }
    }

    /// Rests `first` after the first failed start and twice as long after each further one, `max` at most.
    #[must_use]
    pub const fn exponential(mut self, first: Duration, max: Duration) -> Self {
        self.backoff = Backoff::Exponential { first, max };
        self
    }

    /// Rests equally long after each failed start.
    #[must_use]
    pub const fn constant(mut self, rest: Duration) -> Self {
        self.backoff = Backoff::Constant(rest);
        self
    }

    /// Rests as long as `backoff` says, given the number of failed starts before this one (0 at first).
    #[must_use]
    pub const fn with(mut self, backoff: fn(u32) -> Duration) -> Self {
        self.backoff = Backoff::Function(backoff);
        self
    }

    /// How many starts this policy allows, the first one included.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// How long to rest after a failed start, given the number of failed starts before it. Never overflows.
    #[must_use]
    pub fn backoff(&self, failures: u32) -> Duration {
        match self.backoff {
            Backoff::Exponential { first, max } => {
                let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
                first.saturating_mul(factor).min(max)
            }
            Backoff::Constant(rest) => rest,
            Backoff::Function(backoff) => backoff(failures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_maximum_and_never_overflows() {
        let policy = RetryPolicy::attempts(u32::MAX);
        let seconds: Vec<u64> = [0, 1, 2, 8, 9, 31, 32, u32::MAX].map(|n| policy.backoff(n).as_secs()).into();
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300, 300, 300]);
        let endless = policy.exponential(Duration::MAX, Duration::MAX);
        assert_eq!(endless.backoff(7), Duration::MAX);
    }

    #[test]
    fn a_limit_of_zero_still_allows_the_first_start() {
        assert_eq!(RetryPolicy::attempts(0).max_attempts(), 1);
    }
}
