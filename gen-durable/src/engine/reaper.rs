//! Takes rows back from workers that are gone.
//!
//! A worker is declared dead only after this reaper has itself seen its heartbeat stand still for the
//! whole lease, by its own monotonic clock, in looks that all worked and were on time, while its own beats were
//! committed. So neither an outage of the database (one that is read-only can still be looked at) nor a jump of
//! any clock makes anybody dead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::Core;
use crate::id::WorkerId;
use crate::store::{Reclaimed, StoreResult, WorkerBeat};
use crate::telemetry::{Event, Outage};

/// The most rows that one statement takes back.
const BATCH: u32 = 1_000;

/// Looks after the other workers until the engine stops.
pub(super) async fn run(core: Arc<Core>, every: Duration) {
    let mut outage = Outage::of("reaping", &core.events);
    let mut watch = Watch::default();
    loop {
        let began = Instant::now();
        match tick(&core, &mut watch, every).await {
            Ok(()) => outage.worked(),
            Err(error) => {
                watch.restart();
                outage.failed(&error);
            }
        }
        tokio::time::sleep(every.saturating_sub(began.elapsed())).await;
    }
}

async fn tick(core: &Core, watch: &mut Watch, every: Duration) -> StoreResult<()> {
    let workers = core.store.workers().await?;
    watch.restart_unless(core.takes_beats());
    let mut lost = watch.misses_some(&workers);
    let due = watch.is_reclaim_due();
    for worker in watch.look(workers, Instant::now(), core.options.lease_ttl, every) {
        lost |= core.store.bury(worker.id, worker.beat).await?;
    }
    if !lost && !due {
        return Ok(());
    }
    for (worker, instances) in reclaim(core).await?.0 {
        core.events.emit(Event::WorkerReaped { instances, worker });
    }
    sort_out(core).await?;
    core.kin.wake();
    watch.reclaimed(lost);
    Ok(())
}

/// Takes back every row of dead or missing workers; returns how many, by worker and by queue.
async fn reclaim(core: &Core) -> StoreResult<(HashMap<WorkerId, u64>, HashMap<String, u64>)> {
    let mut workers = HashMap::new();
    let mut queues = HashMap::new();
    loop {
        let reclaimed = core.store.reclaim(BATCH).await?;
        let count: u64 = reclaimed.iter().map(|reclaimed| reclaimed.count).sum();
        for Reclaimed { worker, queue, count } in reclaimed {
            core.work_committed(&queue);
            *workers.entry(worker).or_default() += count;
            *queues.entry(queue).or_default() += count;
        }
        if count < u64::from(BATCH) {
            return Ok((workers, queues));
        }
    }
}

/// Sets rows aside that no live worker can run, and returns those that one can run again.
async fn sort_out(core: &Core) -> StoreResult<()> {
    loop {
        // A node that is only restarted should find its rows where they were.
        let sorted = core.store.sort_out(core.options.lease_ttl * 2, BATCH).await?;
        let back: u64 = sorted.back.iter().map(|(_, count)| count).sum();
        for (queue, count) in &sorted.back {
            core.rows_committed(queue, usize::try_from(*count).unwrap_or(usize::MAX));
        }
        if sorted.aside.max(back) < u64::from(BATCH) {
            return Ok(());
        }
    }
}

impl Core {
    /// Whether the database committed a beat of this engine lately.
    fn takes_beats(&self) -> bool {
        self.lease().is_fresh(self.options.heartbeat * 2)
    }
}

/// What this reaper has seen of each worker's heartbeat.
#[derive(Default)]
struct Watch {
    seen: HashMap<WorkerId, (i64, Instant)>,
    last_look: Option<Instant>,
    /// Looks since rows were last taken back, if they ever were.
    looks_since_reclaim: Option<u32>,
}

/// After how many looks rows of dead or missing workers are searched though no worker went missing.
const RECLAIM_ANYWAY: u32 = 12;

impl Watch {
    /// Forgets what was seen: time that passed unwatched does not count.
    fn restart(&mut self) {
        *self = Self::default();
    }

    /// Time in which the database took nobody's beats does not count either.
    fn restart_unless(&mut self, takes_beats: bool) {
        if !takes_beats {
            self.restart();
        }
    }

    /// Whether a worker that was seen is gone.
    fn misses_some(&self, workers: &[WorkerBeat]) -> bool {
        self.seen.keys().any(|id| workers.iter().all(|worker| worker.id != *id))
    }

    /// Whether it is time to search for rows of dead or missing workers though nobody was lost.
    fn is_reclaim_due(&self) -> bool {
        self.looks_since_reclaim.is_none_or(|looks| looks >= RECLAIM_ANYWAY)
    }

    /// All rows of dead and missing workers were taken back. Once more at the next look if one was lost just
    /// now: a claim of his that was under way may have been committed since.
    fn reclaimed(&mut self, lost: bool) {
        self.looks_since_reclaim = Some(if lost { RECLAIM_ANYWAY } else { 0 });
    }

    /// Notes the beats seen `now`; returns the workers whose beat has stood still for the whole lease.
    fn look(
        &mut self,
        workers: Vec<WorkerBeat>,
        now: Instant,
        ttl: Duration,
        every: Duration,
    ) -> Vec<WorkerBeat> {
        // A look that comes late (this process was frozen) proves nothing about the others.
        if self.last_look.is_some_and(|last| now.duration_since(last) > every * 2 + ttl / 4) {
            self.restart();
        }
        self.last_look = Some(now);
        self.looks_since_reclaim = self.looks_since_reclaim.map(|looks| looks.saturating_add(1));
        let mut still = Vec::new();
        let mut seen = HashMap::with_capacity(workers.len());
        for worker in workers {
            let since = match self.seen.get(&worker.id) {
                Some((beat, since)) if *beat == worker.beat => *since,
                _ => now,
            };
            seen.insert(worker.id, (worker.beat, since));
            if now.duration_since(since) >= ttl {
                still.push(worker);
            }
        }
        self.seen = seen;
        still
    }
}

/// Takes back the claims of earlier processes of this node: the same engine and node name, and a heartbeat
/// that stands still for two beats. Where there are no leases, the claims of all earlier workers, at once.
pub(super) async fn take_back(core: Arc<Core>) {
    let mut outage = Outage::of("taking back claims", &core.events);
    let mut buried = false;
    loop {
        match try_take_back(&core, &mut buried).await {
            Ok(()) => return,
            Err(error) => tokio::time::sleep(outage.failed(&error)).await,
        }
    }
}

async fn try_take_back(core: &Core, buried: &mut bool) -> StoreResult<()> {
    let me = core.lease().id();
    let namesakes = |workers: Vec<WorkerBeat>| {
        workers.into_iter().filter(|worker| {
            worker.id < me && worker.engine == core.options.name && worker.node == core.options.node
        })
    };
    if !core.store.has_leases() {
        // This engine alone has the right to run queues: whoever had it before is gone.
        for worker in core.store.workers().await?.into_iter().filter(|worker| worker.id < me) {
            *buried |= core.store.bury(worker.id, worker.beat).await?;
        }
        reclaim_at_start(core, *buried).await?;
        return sort_out(core).await;
    }
    // What was set aside while no node ran it is wanted from now on.
    sort_out(core).await?;
    // Two beats, and time for the second one to arrive; watched closely, so that an outage in between shows.
    let (silence, every) = (core.options.heartbeat * 5 / 2, core.options.heartbeat / 2);
    let before: Vec<WorkerBeat> = namesakes(core.store.workers().await?).collect();
    let mut silent = before.clone();
    let mut watch = Watch::default();
    while !silent.is_empty() {
        watch.restart_unless(core.takes_beats());
        for worker in watch.look(silent, Instant::now(), silence, every) {
            *buried |= core.store.bury(worker.id, worker.beat).await?;
        }
        tokio::time::sleep(every).await;
        // One that has beaten is alive, whatever becomes of it later.
        silent = namesakes(core.store.workers().await?).filter(|worker| before.contains(worker)).collect();
    }
    reclaim_at_start(core, *buried).await
}

async fn reclaim_at_start(core: &Core, buried: bool) -> StoreResult<()> {
    if buried {
        for (queue, count) in reclaim(core).await?.1 {
            core.events.emit(Event::ClaimsReclaimedAtStart { count, queue });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);
    const EVERY: Duration = Duration::from_secs(5);

    fn beat(beat: i64) -> Vec<WorkerBeat> {
        vec![WorkerBeat { id: WorkerId(1), engine: "default".into(), node: "a".into(), beat }]
    }

    /// Looks every five seconds; returns in which looks the worker is found dead.
    fn looks(beats: &[Option<i64>]) -> Vec<usize> {
        let mut watch = Watch::default();
        let start = Instant::now();
        let mut dead = Vec::new();
        for (n, seen) in beats.iter().enumerate() {
            let now = start + EVERY * u32::try_from(n).expect("few looks");
            match seen {
                Some(n_beat) => {
                    if !watch.look(beat(*n_beat), now, TTL, EVERY).is_empty() {
                        dead.push(n);
                    }
                }
                None => watch.restart(),
            }
        }
        dead
    }

    #[test]
    fn a_worker_is_dead_once_its_beat_stood_still_for_the_lease() {
        assert_eq!(looks(&[Some(7); 8]), [6, 7]);
    }

    #[test]
    fn a_worker_that_beats_is_never_dead() {
        let beats: Vec<Option<i64>> = (0..20).map(|n| Some(n / 4)).collect();
        assert!(looks(&beats).is_empty());
    }

    #[test]
    fn a_failed_look_restarts_the_watch() {
        let mut beats = [Some(7); 12];
        beats[5] = None;
        assert_eq!(looks(&beats), Vec::<usize>::new());
    }

    #[test]
    fn looks_at_a_database_that_takes_no_beats_prove_nothing() {
        let mut watch = Watch::default();
        let start = Instant::now();
        for n in 0..20 {
            // It is read-only until the last look, which comes before the first beat after that.
            watch.restart_unless(n == 19);
            assert!(watch.look(beat(7), start + EVERY * n, TTL, EVERY).is_empty());
        }
    }

    #[test]
    fn a_late_look_restarts_the_watch() {
        let mut watch = Watch::default();
        let start = Instant::now();
        assert!(watch.look(beat(7), start, TTL, EVERY).is_empty());
        assert!(watch.look(beat(7), start + TTL * 10, TTL, EVERY).is_empty());
    }
}
