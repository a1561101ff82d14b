//! What one registration at the store entitles to: its claims, and the proof that it is alive.
//!
//! A worker that is declared dead (*fenced*) never comes back: its lease is over, its steps are told to
//! stop, their outcomes are dropped, and the engine goes on under a new lease.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use futures_util::future::AbortHandle;
use tokio::sync::Notify;

use crate::id::{InstanceId, WorkerId};
use crate::store::Held;

/// Locks a mutex that only short, panic-free sections hold.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a claimed row is.
enum Phase {
    /// Waits for a slot.
    Buffered,
    /// Its step runs, and is told to stop through this.
    Running(AbortHandle),
    /// Its outcome, or the word that it is handed back unfinished, is on the way to the store.
    Handed,
}

struct Holding {
    held: Held,
    phase: Phase,
    /// Whether somebody asked to cancel it.
    is_cancelled: bool,
}

#[derive(Default)]
struct Holdings {
    rows: HashMap<InstanceId, Holding>,
    /// Numbers of claims whose answer is not known yet.
    open_claims: HashSet<i64>,
}

/// After how many beats memory and database are compared though nothing is held.
const COMPARE_ANYWAY: u32 = 12;

/// One registration at the store.
pub(crate) struct Lease {
    id: WorkerId,
    next_claim: AtomicI64,
    lost: AtomicBool,
    /// Whether the answer of a claim was lost, so that the database may hold rows for this worker unknown to it.
    doubt: AtomicBool,
    /// How many beats went by since memory and database were compared.
    uncompared: AtomicU32,
    acknowledged: Mutex<Instant>,
    holdings: Mutex<Holdings>,
    /// Told whenever a row leaves.
    changed: Notify,
}

impl Lease {
    pub(super) fn new(id: WorkerId, acknowledged: Instant) -> Arc<Self> {
        Arc::new(Self {
            id,
            next_claim: AtomicI64::new(1),
            lost: AtomicBool::new(false),
            doubt: AtomicBool::new(false),
            uncompared: AtomicU32::new(0),
            acknowledged: Mutex::new(acknowledged),
            holdings: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub(super) fn id(&self) -> WorkerId {
        self.id
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// A beat that was sent at `sent` has been committed.
    pub(super) fn acknowledge(&self, sent: Instant) {
        *lock(&self.acknowledged) = sent;
    }

    /// Whether a step may start: nobody can have taken the claims away meanwhile.
    pub(super) fn is_fresh(&self, ttl: Duration) -> bool {
        !self.is_lost() && lock(&self.acknowledged).elapsed() < ttl
    }

    /// Ends the lease: tells every step to stop and forgets every row.
    pub(super) fn fence(&self) {
        self.lost.store(true, Ordering::Release);
        let rows = std::mem::take(&mut lock(&self.holdings).rows);
        for holding in rows.into_values() {
            if let Phase::Running(step) = holding.phase {
                step.abort();
            }
        }
        self.changed.notify_waiters();
    }

    /// Begins a claim and returns its number.
    pub(super) fn open_claim(&self) -> i64 {
        let claim = self.next_claim.fetch_add(1, Ordering::Relaxed);
        lock(&self.holdings).open_claims.insert(claim);
        claim
    }

    /// Notes what a claim brought. A claim whose answer was lost brings nothing: the next heartbeat finds
    /// its rows and hands them back.
    pub(super) fn close_claim(&self, claim: i64, rows: impl Iterator<Item = Held>) {
        let mut holdings = lock(&self.holdings);
        holdings.open_claims.remove(&claim);
        for held in rows.take_while(|_| !self.is_lost()) {
            let before =
                holdings.rows.insert(held.id, Holding { held, phase: Phase::Buffered, is_cancelled: false });
            // A crash of the database lost the earlier claim of this row, so it is here once more.
            if let Some(Holding { phase: Phase::Running(step), .. }) = before {
                step.abort();
            }
        }
        drop(holdings);
        self.changed.notify_waiters();
    }

    /// Ends a claim whose answer was lost.
    pub(super) fn lose_claim(&self, claim: i64) {
        self.close_claim(claim, std::iter::empty());
        self.doubt.store(true, Ordering::Release);
    }

    /// Whether memory and database are worth comparing at this beat: rows are held, or may be held unknown. Now and
    /// then they are in any case: the database may commit a claim that was given up long after the doubt.
    pub(super) fn is_worth_comparing(&self) -> bool {
        let uncompared = self.uncompared.fetch_add(1, Ordering::Relaxed);
        self.doubt.load(Ordering::Acquire) || self.count() > 0 || uncompared >= COMPARE_ANYWAY
    }

    /// A comparison begins: what is lost from now on calls for another one.
    pub(super) fn clear_doubt(&self) {
        self.doubt.store(false, Ordering::Release);
        self.uncompared.store(0, Ordering::Relaxed);
    }

    /// The database may hold rows for this worker that it does not know, or no longer.
    pub(super) fn doubt(&self) {
        self.doubt.store(true, Ordering::Release);
    }

    /// Notes that a row's step starts; false if the row is not held any longer.
    pub(super) fn start(&self, held: Held, step: AbortHandle) -> bool {
        self.enter(held, Phase::Running(step))
    }

    /// Notes that a row's outcome, or its return, is on its way; false if the row is not held any longer.
    pub(super) fn hand_over(&self, held: Held) -> bool {
        self.enter(held, Phase::Handed)
    }

    fn enter(&self, held: Held, phase: Phase) -> bool {
        match lock(&self.holdings).rows.get_mut(&held.id) {
            Some(holding) if holding.held == held => {
                if let (Phase::Running(step), true) = (&phase, holding.is_cancelled) {
                    step.abort();
                }
                holding.phase = phase;
                true
            }
            _ => false,
        }
    }

    /// Notes that a committed outcome left the row with this worker, for its next step; false if the row is not
    /// held any longer.
    pub(super) fn keep(&self, before: Held, after: Held) -> bool {
        let mut holdings = lock(&self.holdings);
        match holdings.rows.get_mut(&before.id) {
            Some(holding) if holding.held == before => {
                *holding =
                    Holding { held: after, phase: Phase::Buffered, is_cancelled: holding.is_cancelled };
                true
            }
            _ => false,
        }
    }

    /// Tells the step of a row that is to be cancelled to stop, now or when it starts; false if the row is not held.
    pub(super) fn cancel(&self, id: InstanceId) -> bool {
        let mut holdings = lock(&self.holdings);
        let Some(holding) = holdings.rows.get_mut(&id) else { return false };
        holding.is_cancelled = true;
        if let Phase::Running(step) = &holding.phase {
            step.abort();
        }
        true
    }

    /// Whether a row is to be cancelled.
    pub(super) fn is_cancelled(&self, held: Held) -> bool {
        lock(&self.holdings)
            .rows
            .get(&held.id)
            .is_some_and(|holding| holding.held == held && holding.is_cancelled)
    }

    /// Forgets a row: its outcome is settled, or it was handed back.
    pub(super) fn forget(&self, held: Held) {
        let mut holdings = lock(&self.holdings);
        if holdings.rows.get(&held.id).is_some_and(|holding| holding.held == held) {
            holdings.rows.remove(&held.id);
        }
        drop(holdings);
        self.changed.notify_waiters();
    }

    /// Whether an outcome is on its way.
    pub(super) fn owes_outcome(&self) -> bool {
        lock(&self.holdings).rows.values().any(|holding| matches!(holding.phase, Phase::Handed))
    }

    /// How many rows are held, whatever they do; claims without an answer count as one each.
    pub(super) fn count(&self) -> usize {
        let holdings = lock(&self.holdings);
        holdings.rows.len() + holdings.open_claims.len()
    }

    /// Waits until at most `count` rows are held. Cancel-safe.
    pub(super) async fn shrinks_to(&self, count: usize) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.count() <= count || self.is_lost() {
                return;
            }
            changed.await;
        }
    }

    /// Tells every running step to stop, and returns the rows that were held without a decided outcome.
    pub(super) fn abandon(&self) -> Vec<Held> {
        let mut abandoned = Vec::new();
        lock(&self.holdings).rows.retain(|_, holding| match &holding.phase {
            Phase::Handed => true,
            Phase::Buffered => {
                abandoned.push(holding.held);
                false
            }
            Phase::Running(step) => {
                step.abort();
                abandoned.push(holding.held);
                false
            }
        });
        self.changed.notify_waiters();
        abandoned
    }

    /// The rows held now: what a look at the database is compared with.
    pub(super) fn rows(&self) -> HashSet<Held> {
        lock(&self.holdings).rows.values().map(|holding| holding.held).collect()
    }

    /// Compares memory as it was `before` a look at the database with what the look `found`.
    ///
    /// Returns the rows that the database holds for this worker and that the worker does not know: claims
    /// whose answer was lost. Steps whose row is gone are told to stop and forgotten.
    pub(super) fn reconcile(&self, before: &HashSet<Held>, found: &[Held]) -> Vec<Held> {
        let found_set: HashSet<Held> = found.iter().copied().collect();
        let mut holdings = lock(&self.holdings);
        let unknown = found
            .iter()
            .filter(|held| {
                !holdings.rows.contains_key(&held.id) && !holdings.open_claims.contains(&held.claim)
            })
            .copied()
            .collect();
        holdings.rows.retain(|_, holding| {
            let gone = before.contains(&holding.held) && !found_set.contains(&holding.held);
            match &holding.phase {
                // The flusher finds out by itself.
                Phase::Handed => true,
                Phase::Buffered => !gone,
                Phase::Running(step) => {
                    if gone {
                        step.abort();
                    }
                    !gone
                }
            }
        });
        drop(holdings);
        self.changed.notify_waiters();
        unknown
    }
}

/// The engine's present lease; replaced when it is fenced.
pub(crate) struct Worker {
    lease: RwLock<Arc<Lease>>,
}

impl Worker {
    pub(super) fn new(lease: Arc<Lease>) -> Self {
        Self { lease: RwLock::new(lease) }
    }

    pub(super) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn replace(&self, lease: Arc<Lease>) {
        *self.lease.write().unwrap_or_else(PoisonError::into_inner) = lease;
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn held(n: u128, claim: i64) -> Held {
        Held { id: InstanceId::from(Uuid::from_u128(n)), claim, revision: 0 }
    }

    fn lease_with(rows: &[Held]) -> Arc<Lease> {
        let lease = Lease::new(WorkerId(1), Instant::now());
        let claim = lease.open_claim();
        lease.close_claim(claim, rows.iter().copied());
        lease
    }

    #[test]
    fn a_row_whose_claim_was_never_answered_is_unknown() {
        let lease = lease_with(&[held(1, 1)]);
        let before = lease.rows();
        assert_eq!(lease.reconcile(&before, &[held(1, 1), held(2, 7)]), [held(2, 7)]);
    }

    #[test]
    fn a_row_whose_claim_is_still_under_way_is_left_alone() {
        let lease = lease_with(&[]);
        let claim = lease.open_claim();
        assert!(lease.reconcile(&lease.rows(), &[held(1, claim)]).is_empty());
    }

    #[test]
    fn a_step_whose_row_is_gone_is_told_to_stop() {
        let lease = lease_with(&[held(1, 1)]);
        let (step, registration) = AbortHandle::new_pair();
        assert!(lease.start(held(1, 1), step));
        lease.reconcile(&lease.rows(), &[]);
        assert!(registration.handle().is_aborted());
        assert!(!lease.hand_over(held(1, 1)), "its outcome has nowhere to go");
    }

    #[test]
    fn a_step_whose_row_was_claimed_once_more_is_told_to_stop() {
        let lease = lease_with(&[held(1, 1)]);
        let (step, registration) = AbortHandle::new_pair();
        assert!(lease.start(held(1, 1), step));
        let claim = lease.open_claim();
        lease.close_claim(claim, [held(1, claim)].into_iter());
        assert!(registration.handle().is_aborted());
        assert!(!lease.hand_over(held(1, 1)), "its outcome has nowhere to go");
        assert_eq!(lease.rows(), HashSet::from([held(1, claim)]));
    }

    #[test]
    fn memory_and_database_are_compared_in_doubt_and_every_twelfth_beat_in_any_case() {
        let lease = lease_with(&[]);
        let beats_until_compared = || (0..100).position(|_| lease.is_worth_comparing());
        lease.lose_claim(lease.open_claim());
        assert_eq!(beats_until_compared(), Some(0));
        lease.clear_doubt();
        assert_eq!(beats_until_compared(), Some(12));
    }

    #[test]
    fn a_row_claimed_after_the_look_is_not_taken_for_gone() {
        let lease = lease_with(&[]);
        let before = lease.rows();
        let claim = lease.open_claim();
        lease.close_claim(claim, [held(1, claim)].into_iter());
        lease.reconcile(&before, &[]);
        assert_eq!(lease.count(), 1);
    }

    #[test]
    fn fencing_stops_every_step_and_admits_nothing_more() {
        let lease = lease_with(&[held(1, 1)]);
        let (step, registration) = AbortHandle::new_pair();
        assert!(lease.start(held(1, 1), step));
        lease.fence();
        assert!(registration.handle().is_aborted());
        let claim = lease.open_claim();
        lease.close_claim(claim, [held(2, claim)].into_iter());
        assert_eq!(lease.count(), 0);
        assert!(!lease.is_fresh(Duration::MAX));
    }
}
