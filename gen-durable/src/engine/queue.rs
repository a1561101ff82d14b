//! One queue on this node: its slots, and the claimed rows that wait for one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::lease::{Lease, lock};
use crate::store::Claimed;
use crate::telemetry::Event;

/// A buffered row that waited this long shows that too much is claimed ahead.
const SLUGGISH: Duration = Duration::from_millis(250);
/// A buffered row that waited this long is handed back, for a node that has a slot.
const FORSAKEN: Duration = Duration::from_secs(1);

/// A claimed row, under the lease that claimed it.
pub(super) struct Ticket {
    pub(super) row: Arc<Claimed>,
    pub(super) lease: Arc<Lease>,
    pub(super) claimed_at: Instant,
    /// How many steps the instance has run on this claim already.
    pub(super) ran_ahead: u32,
}

/// One queue on this node.
pub(super) struct Queue {
    pub(super) name: Arc<str>,
    concurrency: u32,
    max_prefetch: u32,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    buffer: VecDeque<Ticket>,
    running: u32,
    /// Whether the store may have due rows.
    hungry: bool,
    /// How many rows may wait for a slot. Grows while slots run dry between claims, shrinks when rows grow
    /// old in the buffer: so it follows the duration of steps.
    prefetch: u32,
    /// When the part of the queue that the last claim left out is to be looked at.
    look_again_at: Option<Instant>,
    /// Whether the last claim brought all that it asked for.
    plenty: bool,
    /// Whether a slot found nothing to run since the last claim began.
    starved: bool,
    /// Claims up to this number are not judged again for having waited.
    judged: i64,
    /// Rows that a stop handed back unstarted.
    released: u64,
}

impl State {
    /// When the row that has waited longest has waited too long. Those that run ahead are new, and before it.
    fn forsaken_at(&self) -> Option<Instant> {
        let oldest = self.buffer.iter().find(|ticket| ticket.ran_ahead == 0).or(self.buffer.front());
        oldest.map(|ticket| ticket.claimed_at + FORSAKEN)
    }
}

/// What a runner does next.
pub(super) enum Turn {
    /// Run this row.
    Run(Ticket),
    /// Nothing to do: the slot is given up.
    Rest,
}

impl Queue {
    pub(super) fn new(name: &str, concurrency: u32, max_prefetch: u32) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            concurrency,
            max_prefetch,
            state: Mutex::new(State {
                buffer: VecDeque::new(),
                running: 0,
                hungry: true,
                prefetch: 0,
                look_again_at: None,
                plenty: false,
                starved: false,
                judged: 0,
                released: 0,
            }),
            wake: Notify::new(),
        })
    }

    /// Says that the store may have due rows.
    pub(super) fn poke(&self) {
        let mut state = lock(&self.state);
        state.hungry = true;
        // The look that follows, whenever a slot is free for it, says anew when the next one is due.
        state.look_again_at = None;
        drop(state);
        self.wake.notify_one();
    }

    /// Lets the scheduler look at the queue again.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits to be woken. Cancel-safe; a wake before the wait is kept.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// How many rows to claim now; `None` when there is no need.
    pub(super) fn demand(&self) -> Option<u32> {
        let state = lock(&self.state);
        let free = self.concurrency.saturating_sub(state.running);
        let buffered = u32::try_from(state.buffer.len()).unwrap_or(u32::MAX);
        let room = free + state.prefetch;
        let demand = room.saturating_sub(buffered);
        // In batches: at half-empty, or when a slot has nothing to run.
        let worthwhile = demand > 0 && (buffered == 0 && free > 0 || demand * 2 >= room.max(1));
        (state.hungry && worthwhile).then_some(demand)
    }

    /// Whether slots are left beyond the rows that wait for one.
    pub(super) fn has_room_for(&self, rows: usize) -> bool {
        let state = lock(&self.state);
        state.buffer.len() + rows <= (self.concurrency.saturating_sub(state.running)) as usize
    }

    /// A claim begins: pokes from now on are about rows that it may not see.
    pub(super) fn claim_begins(&self) {
        let mut state = lock(&self.state);
        state.hungry = false;
        if state.plenty && state.starved {
            state.prefetch = (state.prefetch * 2).max(self.concurrency).min(self.max_prefetch);
        }
        state.starved = state.buffer.is_empty();
    }

    /// When a claim looked at a part of the queue only, the rest is to be looked at after this time.
    pub(super) fn look_again_in(&self, rest: Option<Duration>) {
        lock(&self.state).look_again_at = rest.map(|rest| Instant::now() + rest);
    }

    /// When the part of the queue that the last claim left out is to be looked at.
    pub(super) fn look_again_at(&self) -> Option<Instant> {
        lock(&self.state).look_again_at
    }

    /// A claim brought these rows of the `demand`.
    pub(super) fn claim_brought(&self, tickets: Vec<Ticket>, demand: u32) {
        let mut state = lock(&self.state);
        state.plenty = tickets.len() >= demand as usize;
        // A full claim leaves more behind; so may one that skipped rows that others had locked, but those
        // are claimed or unlocked by whoever holds them, and pokes or polls tell.
        state.hungry |= state.plenty;
        state.buffer.extend(tickets);
    }

    /// A row that runs ahead: it is the next to get a slot.
    pub(super) fn put_first(&self, ticket: Ticket) {
        lock(&self.state).buffer.push_front(ticket);
        self.wake.notify_one();
    }

    /// Takes slots for the rows that wait: this many runners are to be started.
    pub(super) fn take_slots(&self) -> u32 {
        let mut state = lock(&self.state);
        let free = self.concurrency.saturating_sub(state.running);
        let taken = free.min(u32::try_from(state.buffer.len()).unwrap_or(u32::MAX));
        state.running += taken;
        taken
    }

    /// Takes one slot for a row that is not in the buffer.
    pub(super) fn take_slot(&self) {
        lock(&self.state).running += 1;
    }

    /// Gives up a slot.
    pub(super) fn give_up_slot(&self) {
        let mut state = lock(&self.state);
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.wake.notify_one();
    }

    /// The next row for a runner that holds a slot. On [`Turn::Rest`] the slot is given up.
    pub(super) fn turn(&self, may_start: impl Fn(&Lease) -> bool) -> Turn {
        let mut state = lock(&self.state);
        loop {
            match state.buffer.front() {
                Some(ticket) if ticket.lease.is_lost() => {
                    state.buffer.pop_front();
                }
                Some(ticket) if may_start(&ticket.lease) => break,
                front => {
                    state.starved |= front.is_none();
                    state.running = state.running.saturating_sub(1);
                    drop(state);
                    self.wake.notify_one();
                    return Turn::Rest;
                }
            }
        }
        let Some(ticket) = state.buffer.pop_front() else {
            unreachable!("the front was seen under this lock")
        };
        if ticket.row.claim > state.judged && ticket.claimed_at.elapsed() > SLUGGISH {
            state.prefetch /= 2;
            state.judged = ticket.row.claim;
        }
        let low = state.buffer.len() * 2 <= state.prefetch as usize;
        drop(state);
        if low {
            self.wake.notify_one();
        }
        Turn::Run(ticket)
    }

    /// Empties the buffer.
    pub(super) fn drain_buffer(&self) -> Vec<Ticket> {
        lock(&self.state).buffer.drain(..).collect()
    }

    /// Takes the rows out of the buffer that were charged with a crash before and find no slot, and stops claiming
    /// ahead. They, or others that a claim passed over, are still due.
    pub(super) fn drain_charged(&self) -> Vec<Ticket> {
        let mut state = lock(&self.state);
        state.prefetch = 0;
        state.starved = false;
        state.hungry = true;
        // Runners that hold a slot already take rows from the front.
        let free = self.concurrency as usize;
        let (charged, kept) = state
            .buffer
            .drain(..)
            .enumerate()
            .partition::<Vec<_>, _>(|(place, ticket)| *place >= free && ticket.row.crashes > 0);
        state.buffer.extend(kept.into_iter().map(|(_, ticket)| ticket));
        charged.into_iter().map(|(_, ticket)| ticket).collect()
    }

    /// Takes the rows out of the buffer that have waited too long for a slot.
    pub(super) fn forsaken(&self) -> Vec<Ticket> {
        let mut state = lock(&self.state);
        if state.forsaken_at().is_none_or(|at| Instant::now() < at) {
            return Vec::new();
        }
        state.prefetch = 0;
        state.hungry = true;
        state.buffer.drain(..).collect()
    }

    /// Whether rows wait in the buffer.
    pub(super) fn has_buffered(&self) -> bool {
        !lock(&self.state).buffer.is_empty()
    }

    /// When the rows in the buffer, if there are any, have waited too long.
    pub(super) fn forsaken_at(&self) -> Option<Instant> {
        lock(&self.state).forsaken_at()
    }

    /// Notes that a stop handed this many rows back that waited for a slot.
    pub(super) fn note_released(&self, rows: u64) {
        lock(&self.state).released += rows;
    }

    /// How many rows that waited for a slot a stop handed back.
    pub(super) fn released(&self) -> u64 {
        lock(&self.state).released
    }

    pub(super) fn running(&self) -> u32 {
        lock(&self.state).running
    }

    pub(super) fn saturation(&self) -> Event {
        let state = lock(&self.state);
        Event::QueueSaturation {
            running: state.running,
            buffered: u32::try_from(state.buffer.len()).unwrap_or(u32::MAX),
            concurrency: self.concurrency,
            prefetch: state.prefetch,
            queue: Arc::clone(&self.name),
        }
    }
}
