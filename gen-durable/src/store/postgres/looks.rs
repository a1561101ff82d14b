//! How far back a claim looks.
//!
//! A row that is claimed leaves a dead entry at the head of its queue until a vacuum takes it away, and a look visits the
//! row behind each. While somebody holds an old snapshot no vacuum can: after 100,000 claims a look at an empty queue takes
//! 8 ms (PostgreSQL 15), and so on in proportion. What became eligible before a look that left nothing is not worth a
//! visit: within the index it is passed over for a hundredth of that.
//!
//! Rows may still turn up there late: those whose transaction took long to commit, and those that come back from
//! another worker. So only queues are looked at in this way where looks at everything were dear, some time is allowed for,
//! and a look at everything always follows, as often as it costs little and twice a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::{ClaimRequest, Claims};

/// A look that took longer than this is dear, and so much longer for each row that it took.
const DEAR: Duration = Duration::from_millis(5);
const DEAR_EACH: Duration = Duration::from_micros(100);
/// So many in a row must have been dear: one alone may have opened its connection, or waited for a processor.
const IN_A_ROW: u32 = 3;
/// How long rows may take from the time from which they are eligible until they are committed, without being late.
const LATE: Duration = Duration::from_secs(2);
/// After a dear look, how many times as long none looks at everything, and how long at most.
const RESTS: u32 = 20;
const LONGEST_REST: Duration = Duration::from_millis(500);

/// What is known of earlier looks at each queue.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<Arc<str>, Past>>);

#[derive(Debug, Default)]
struct Past {
    /// When the last look began that left nothing.
    emptied: Option<Instant>,
    /// How many looks at everything were dear one after the other.
    dear: u32,
    /// When to look at everything again, if that is dear.
    whole_due: Option<Instant>,
    /// Whether rows may have been passed over since everything was looked at.
    owes_whole: bool,
}

/// A look under way.
#[derive(Debug)]
pub(super) struct Look {
    begun: Instant,
    back: Option<Duration>,
}

impl Look {
    /// Since how long ago rows have been eligible that this looks at; `None` for all rows.
    pub(super) fn back(&self) -> Option<Duration> {
        self.back
    }
}

impl Looks {
    /// A look begins. One for a row that runs alone is for a row that was seen: it must not be passed over.
    pub(super) fn begin(&self, request: &ClaimRequest<'_>, now: Instant) -> Look {
        let pasts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let back = pasts.get(request.queue).and_then(|past| {
            let is_due = past.owes_whole && past.whole_due? <= now;
            let emptied = past.emptied.filter(|_| past.whole_due.is_some() && !is_due && !request.alone)?;
            Some(now.saturating_duration_since(emptied) + LATE)
        });
        Look { begun: now, back }
    }

    /// A look ended well. Returns after which time the rest is to be looked at.
    pub(super) fn end(
        &self,
        request: &ClaimRequest<'_>,
        look: &Look,
        claims: &Claims,
        now: Instant,
    ) -> Option<Duration> {
        let mut pasts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let past = pasts.entry(Arc::clone(request.queue)).or_default();
        let took = now.saturating_duration_since(look.begun);
        let rows = u32::try_from(claims.rows.len()).unwrap_or(u32::MAX);
        if rows < request.limit && !claims.left_suspects {
            past.emptied = Some(look.begun);
        }
        past.owes_whole = look.back.is_some();
        if look.back.is_none() {
            let is_dear = took > DEAR + DEAR_EACH.saturating_mul(rows);
            past.dear = if is_dear { past.dear.saturating_add(1) } else { 0 };
            past.whole_due =
                (past.dear >= IN_A_ROW).then(|| now + took.saturating_mul(RESTS).min(LONGEST_REST));
            return None;
        }
        past.whole_due.map(|due| due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{MachineId, WorkerId};

    /// One queue whose looks begin and take as long as a test says, in milliseconds.
    struct Clock {
        looks: Looks,
        queue: Arc<str>,
        start: Instant,
    }

    impl Clock {
        fn new() -> Self {
            Self { looks: Looks::default(), queue: "queue".into(), start: Instant::now() }
        }

        /// After two dear looks.
        fn wary() -> Self {
            let clock = Self::new();
            assert_eq!(clock.look(0, 10), WHOLE);
            assert_eq!(clock.look(10, 10), WHOLE);
            clock
        }

        /// How far back a look goes that takes nothing, and when the next one should be.
        fn look(&self, begins: u64, takes: u64) -> (Option<u64>, Option<u64>) {
            self.look_for(begins, takes, false, &Claims::default())
        }

        fn look_for(
            &self,
            begins: u64,
            takes: u64,
            alone: bool,
            found: &Claims,
        ) -> (Option<u64>, Option<u64>) {
            let (worker, machines, queue) = (WorkerId(1), &[MachineId(1)][..], &self.queue);
            let request = ClaimRequest { worker, claim: 1, queue, machines, limit: 10, alone };
            let at = |millis| self.start + Duration::from_millis(millis);
            let look = self.looks.begin(&request, at(begins));
            let again = self.looks.end(&request, &look, found, at(begins + takes));
            let millis = |duration: Duration| u64::try_from(duration.as_millis()).expect("it is short");
            (look.back().map(millis), again.map(millis))
        }
    }

    const WHOLE: (Option<u64>, Option<u64>) = (None, None);

    #[test]
    fn cheap_looks_are_at_everything_and_so_are_those_after_a_few_dear_ones() {
        let clock = Clock::new();
        for (begins, takes) in
            [(0, 5), (10, 5), (20, 50), (100, 50), (200, 5), (300, 50), (400, 50), (5_000, 5)]
        {
            assert_eq!(clock.look(begins, takes), WHOLE);
        }
    }

    #[test]
    fn after_dear_looks_the_next_one_goes_back_to_the_last_and_some_time_and_a_whole_one_follows() {
        let clock = Clock::wary();
        assert_eq!(clock.look(30, 10), WHOLE);
        assert_eq!(clock.look(50, 1), (Some(2_020), Some(189)), "whole at 40 + 20 * 10");
        assert_eq!(clock.look(100, 1), (Some(2_050), Some(139)), "nothing was left at 50");
        assert_eq!(clock.look(240, 10), WHOLE);
        assert_eq!(clock.look(251, 1).0, Some(2_011));
    }

    #[test]
    fn after_a_long_pause_the_short_look_comes_before_the_whole_one() {
        let clock = Clock::wary();
        clock.look(100, 500);
        assert_eq!(clock.look(60_000, 1), (Some(61_900), Some(0)));
        assert_eq!(clock.look(60_001, 500), WHOLE);
        assert_eq!(clock.look(60_600, 1), (Some(2_599), Some(400)), "half a second at most");
    }

    #[test]
    fn once_a_whole_look_is_cheap_again_all_are_whole() {
        let clock = Clock::wary();
        clock.look(30, 10);
        clock.look(300, 1);
        assert_eq!(clock.look(301, 1), WHOLE);
        assert_eq!(clock.look(302, 1), WHOLE);
    }

    #[test]
    fn a_look_that_left_rows_moves_nothing_forward() {
        let clock = Clock::wary();
        clock.look(30, 10);
        let left = Claims { left_suspects: true, ..Claims::default() };
        clock.look_for(50, 1, false, &left);
        assert_eq!(clock.look(100, 1).0, Some(2_070));
    }

    #[test]
    fn a_row_that_runs_alone_is_never_passed_over() {
        let clock = Clock::wary();
        clock.look(30, 10);
        assert_eq!(clock.look_for(50, 1, true, &Claims::default()), WHOLE);
    }
}
