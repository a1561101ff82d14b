//! The loop of one queue: claims due rows in batches and starts runners for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::core::Core;
use super::executor;
use super::lease::Lease;
use super::queue::{Queue, Ticket, Turn};
use crate::store::{ClaimRequest, Claims, Held, StoreResult};
use crate::telemetry::{Event, Outage};

/// How many decided outcomes may wait for the database before claiming pauses.
const MAX_WAITING_OUTCOMES: usize = 5_000;

/// Whether this node runs one suspect row alone.
#[derive(Default)]
pub(super) struct Solo(AtomicBool);

impl Solo {
    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Runs a queue until the engine stops.
pub(super) async fn run(core: Arc<Core>, queue: Arc<Queue>) {
    let mut outage = Outage::of("claiming", &core.events);
    let mut poll = Poll::new(core.options.poll_interval, core.options.max_poll_interval);
    while !core.is_stopping() {
        start_runners(&core, &queue);
        let lease = core.lease();
        if let Some(demand) = demand(&core, &queue, &lease) {
            match claim(&core, &queue, &lease, demand).await {
                Ok(0) => outage.worked(),
                Ok(_) => {
                    outage.worked();
                    poll.reset();
                }
                Err(error) => {
                    let rest = outage.failed(&error);
                    tokio::select! {
                        () = tokio::time::sleep(rest) => {}
                        () = core.stopped() => {}
                    }
                    queue.poke();
                }
            }
            continue;
        }
        let forsaken = async {
            match queue.forsaken_at() {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let again = async {
            match queue.look_again_at() {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = queue.woken() => {}
            () = poll.tick() => queue.poke(),
            () = again => queue.poke(),
            () = forsaken => drop(hand_back(&core, &queue.name, queue.forsaken()).await),
            () = core.stopped() => {}
        }
    }
    // No more rows start; those that wait for a slot are for other nodes.
    queue.note_released(hand_back(&core, &queue.name, queue.drain_buffer()).await);
}

fn demand(core: &Core, queue: &Queue, lease: &Lease) -> Option<u32> {
    let may_claim = !core.solo.is_on()
        && lease.is_fresh(core.options.lease_ttl)
        && core.flusher.waiting() < MAX_WAITING_OUTCOMES;
    if may_claim { queue.demand() } else { None }
}

async fn claim(core: &Arc<Core>, queue: &Arc<Queue>, lease: &Arc<Lease>, demand: u32) -> StoreResult<usize> {
    queue.claim_begins();
    let Fetched { tickets, left_suspects } = fetch(core, queue, lease, demand, false).await?;
    let count = tickets.len();
    if tickets.is_empty() && left_suspects && !core.solo.0.swap(true, Ordering::AcqRel) {
        let ran = run_alone(core, queue, lease).await;
        core.solo.0.store(false, Ordering::Release);
        core.queues.iter().for_each(|queue| queue.poke());
        return ran;
    }
    if core.solo.is_on() {
        // Another row needs the node for itself.
        hand_back(core, &queue.name, tickets).await;
        return Ok(count);
    }
    let unsafe_ahead = left_suspects || tickets.iter().any(|ticket| ticket.row.crashes > 0);
    queue.claim_brought(tickets, demand);
    if unsafe_ahead {
        // Processes died lately. A row that was charged with that is not to be charged again for having waited
        // here when the next one dies: what finds no slot goes back, and nothing is claimed ahead for now.
        start_runners(core, queue);
        hand_back(core, &queue.name, queue.drain_charged()).await;
    }
    if core.events.wanted(tracing::Level::TRACE) {
        core.events.emit(queue.saturation());
    }
    Ok(count)
}

/// What a claim brought.
pub(super) struct Fetched {
    pub(super) tickets: Vec<Ticket>,
    left_suspects: bool,
}

/// Claims rows; one that runs alone only if `alone`.
pub(super) async fn fetch(
    core: &Core,
    queue: &Queue,
    lease: &Arc<Lease>,
    demand: u32,
    alone: bool,
) -> StoreResult<Fetched> {
    let claim = lease.open_claim();
    let request = ClaimRequest {
        worker: lease.id(),
        claim,
        queue: &queue.name,
        machines: core.registry.ids(),
        limit: demand,
        alone,
    };
    let Claims { rows, left_suspects, look_again } = match core.store.claim(&request).await {
        Ok(claims) => claims,
        Err(error) => {
            lease.lose_claim(claim);
            return Err(error);
        }
    };
    queue.look_again_in(look_again);
    lease.close_claim(claim, rows.iter().map(crate::store::Claimed::held));
    let count = rows.len();
    if core.events.wanted(tracing::Level::TRACE) {
        core.events.emit(Event::ClaimRan {
            count,
            demand,
            queue: Arc::clone(&queue.name),
            worker: lease.id(),
        });
    }
    let claimed_at = Instant::now();
    let ticket = |row| Ticket { row: Arc::new(row), lease: Arc::clone(lease), claimed_at, ran_ahead: 0 };
    Ok(Fetched { tickets: rows.into_iter().map(ticket).collect(), left_suspects })
}

/// Starts a runner for each row that waits and finds a slot.
fn start_runners(core: &Arc<Core>, queue: &Arc<Queue>) {
    if core.solo.is_on() || !core.lease().is_fresh(core.options.lease_ttl) {
        return;
    }
    for _ in 0..queue.take_slots() {
        tokio::spawn(runner(Arc::clone(core), Arc::clone(queue)));
    }
}

/// Runs rows of the queue one after the other in one slot, as long as there are any.
async fn runner(core: Arc<Core>, queue: Arc<Queue>) {
    let may_start =
        |lease: &Lease| lease.is_fresh(core.options.lease_ttl) && !core.solo.is_on() && !core.is_stopping();
    // `turn` gives the slot up itself when there is nothing to run.
    while let Turn::Run(ticket) = queue.turn(may_start) {
        executor::run(&core, &ticket).await;
        tokio::task::coop::consume_budget().await;
    }
}

/// Runs the next step of an instance on the claim that it holds already.
pub(super) fn run_ahead(core: &Arc<Core>, ticket: Ticket) {
    let queue = core.queue(&ticket.row.queue).filter(|_| !core.is_stopping() && !core.solo.is_on());
    match queue {
        Some(queue) => {
            queue.put_first(ticket);
            start_runners(core, queue);
        }
        None => {
            let core = Arc::clone(core);
            tokio::spawn(async move {
                let queue = Arc::clone(&ticket.row.queue);
                hand_back(&core, &queue, vec![ticket]).await;
            });
        }
    }
}

/// Runs the most urgent row, which crashed twice, with nothing else on this node, so that it takes no other row
/// with it when it ends the process again. Hands the buffered rows back, waits for the steps that run, and only
/// then claims it: a step that ends the process meanwhile must not be charged to it.
async fn run_alone(core: &Arc<Core>, queue: &Arc<Queue>, lease: &Arc<Lease>) -> StoreResult<usize> {
    for other in &core.queues {
        hand_back(core, &other.name, other.drain_buffer()).await;
    }
    if !idle(core, lease).await || !lease.is_fresh(core.options.lease_ttl) {
        return Ok(0);
    }
    let tickets = fetch(core, queue, lease, 1, true).await?.tickets;
    let count = tickets.len();
    if core.is_stopping() || !lease.is_fresh(core.options.lease_ttl) {
        hand_back(core, &queue.name, tickets).await;
        return Ok(count);
    }
    // Another node may have taken the row, and this be any other one.
    for ticket in tickets {
        queue.take_slot();
        executor::run(core, &ticket).await;
        queue.give_up_slot();
    }
    idle(core, lease).await;
    Ok(count)
}

/// Waits until nothing is held under this lease; false when the engine stops.
async fn idle(core: &Core, lease: &Lease) -> bool {
    tokio::select! {
        () = lease.shrinks_to(0) => !core.is_stopping(),
        () = core.stopped() => false,
    }
}

/// Hands rows back to their queue without charging them. What cannot be handed back now is found by the
/// next heartbeat, or returns when the lease ends.
pub(super) async fn hand_back(core: &Core, queue: &str, tickets: Vec<Ticket>) -> u64 {
    let mut released = 0;
    for (lease, held) in by_lease(&tickets) {
        let count = match core.store.release(lease.id(), &held).await {
            Ok(count) => count,
            Err(error) => {
                core.events
                    .emit(Event::StoreUnavailable { operation: "handing rows back", error: error.chain() });
                0
            }
        };
        released += count;
        let all = held.len() as u64;
        // Not before: a shutdown waits for it.
        held.into_iter().for_each(|held| lease.forget(held));
        if count < all {
            // It failed, or somebody's transaction holds one.
            lease.doubt();
        }
    }
    if released > 0 {
        core.pokes.tell(crate::store::Poke::Queue(queue.into()));
    }
    released
}

/// The rows that are still held, those of each lease together: after a fencing, rows of two may wait in one buffer.
/// What an ended lease held is not handed back: others have it, or will.
fn by_lease(tickets: &[Ticket]) -> Vec<(Arc<Lease>, Vec<Held>)> {
    let mut groups: Vec<(Arc<Lease>, Vec<Held>)> = Vec::new();
    for Ticket { lease, row, .. } in tickets {
        if !lease.hand_over(row.held()) {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, lease)) {
            Some((_, held)) => held.push(row.held()),
            None => groups.push((Arc::clone(lease), vec![row.held()])),
        }
    }
    groups
}

/// The floor of discovery: rarer while nothing is found, with jitter so that nodes do not march in step.
pub(super) struct Poll {
    shortest: Duration,
    longest: Duration,
    next: Duration,
    last: tokio::time::Instant,
}

impl Poll {
    pub(super) fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, next: jitter(shortest), last: tokio::time::Instant::now() }
    }

    pub(super) fn reset(&mut self) {
        self.next = jitter(self.shortest);
        self.last = tokio::time::Instant::now();
    }

    /// Waits until it is time to look, and doubles the time until the next look. Cancel-safe.
    pub(super) async fn tick(&mut self) {
        tokio::time::sleep_until(self.last + self.next).await;
        self.last = tokio::time::Instant::now();
        self.next = jitter((self.next * 2).min(self.longest));
    }
}

/// Up to a tenth less than `interval`.
fn jitter(interval: Duration) -> Duration {
    let random = u32::try_from(uuid::Uuid::now_v7().as_u128() & 0xffff).unwrap_or(0);
    interval - interval.mul_f64(f64::from(random) / 655_360.0)
}
