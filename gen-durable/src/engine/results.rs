//! Waiting for results: ends on this node are pushed, ends on other nodes are told by a poke or found by
//! looking. All who wait look together, in one statement.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot};

use super::core::Core;
use super::lease::lock;
use crate::id::InstanceId;
use crate::store::{Snapshot, Status, StoreError};
use crate::telemetry::Outage;

/// How an instance ended.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// With this output, as JSON text.
    Done(String),
    /// For this reason.
    Failed(String),
    /// Because somebody cancelled it.
    Cancelled,
}

/// What wakes one who waits.
#[derive(Debug)]
pub(super) enum News {
    /// It ended here.
    Ended(End),
    /// It ended elsewhere: look.
    Look,
}

type Waiters = HashMap<InstanceId, Vec<(u64, mpsc::UnboundedSender<News>)>>;

/// All who wait for results on this engine.
#[derive(Default)]
pub(super) struct Results {
    waiters: Mutex<Waiters>,
    tickets: std::sync::atomic::AtomicU64,
}

/// One who waits; stops waiting when dropped.
pub(super) struct Waiter<'a> {
    results: &'a Results,
    id: InstanceId,
    ticket: u64,
    news: mpsc::UnboundedReceiver<News>,
}

impl Results {
    pub(super) fn wait_for(&self, id: InstanceId) -> Waiter<'_> {
        let (sender, news) = mpsc::unbounded_channel();
        let ticket = self.tickets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        lock(&self.waiters).entry(id).or_default().push((ticket, sender));
        Waiter { results: self, id, ticket, news }
    }

    pub(super) fn push(&self, id: InstanceId, end: End) {
        let waiters = lock(&self.waiters);
        for (_, waiter) in waiters.get(&id).into_iter().flatten() {
            // One who stopped waiting needs no news.
            let _ = waiter.send(News::Ended(end.clone()));
        }
    }

    pub(super) fn ended_elsewhere(&self, id: InstanceId) {
        for (_, waiter) in lock(&self.waiters).get(&id).into_iter().flatten() {
            let _ = waiter.send(News::Look);
        }
    }

    /// News may have been missed: everybody looks.
    pub(super) fn look_all(&self) {
        for (_, waiter) in lock(&self.waiters).values().flatten() {
            let _ = waiter.send(News::Look);
        }
    }
}

impl Waiter<'_> {
    /// The next news. Cancel-safe.
    pub(super) async fn news(&mut self) -> News {
        // The sender lives as long as this waiter is registered.
        self.news.recv().await.unwrap_or(News::Look)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiters = lock(&self.results.waiters);
        if let Some(list) = waiters.get_mut(&self.id) {
            list.retain(|(ticket, _)| *ticket != self.ticket);
            if list.is_empty() {
                waiters.remove(&self.id);
            }
        }
    }
}

/// A question to the store: where does this instance stand?
pub(super) struct Question {
    pub(super) id: InstanceId,
    /// Whether its end shall be told to this node.
    pub(super) watch: bool,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What the store says.
pub(super) type Answer = Result<Option<Snapshot>, Arc<StoreError>>;

/// The most instances that one look asks for.
const MAX_LOOK: usize = 1_000;

/// Asks the store for all who wait, many in one statement, without waiting for company.
pub(super) async fn look(core: Arc<Core>, mut questions: mpsc::UnboundedReceiver<Question>) {
    let mut outage = Outage::of("reading results", &core.events);
    let mut asked = Vec::new();
    while questions.recv_many(&mut asked, MAX_LOOK).await > 0 {
        let (watching, passing): (Vec<_>, Vec<_>) =
            asked.drain(..).partition(|question: &Question| question.watch);
        for (watch, asked) in [(true, watching), (false, passing)] {
            if !asked.is_empty() {
                answer(&core, watch, asked, &mut outage).await;
            }
        }
    }
}

async fn answer(core: &Core, watch: bool, asked: Vec<Question>, outage: &mut Outage) {
    let mut ids: Vec<InstanceId> = asked.iter().map(|question| question.id).collect();
    ids.sort_unstable();
    ids.dedup();
    match core.store.probe(&ids, watch).await {
        Ok(snapshots) => {
            outage.worked();
            if watch {
                // A claim that came while they were marked has passed over them.
                let ready = snapshots.iter().filter(|snapshot| snapshot.status == Status::Ready);
                let queues: HashSet<&str> = ready.map(|snapshot| snapshot.queue.as_str()).collect();
                queues.into_iter().for_each(|queue| core.work_committed(queue));
            }
            let found: HashMap<InstanceId, Snapshot> =
                snapshots.into_iter().map(|snapshot| (snapshot.id, snapshot)).collect();
            for question in asked {
                // One who stopped waiting needs no answer.
                let _ = question.answer.send(Ok(found.get(&question.id).cloned()));
            }
        }
        Err(error) => {
            outage.failed(&error);
            let error = Arc::new(error);
            for question in asked {
                let _ = question.answer.send(Err(Arc::clone(&error)));
            }
        }
    }
}
