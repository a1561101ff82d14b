//! Commits single inserts: those that arrive while one is under way go together in the next, without ever
//! waiting for company.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc, oneshot};

use super::core::Core;
use super::insert::committed;
use crate::store::{NewInstance, StoreError};
use crate::telemetry::{Event, Outage};

/// The most instances in one transaction.
const MAX_BATCH: usize = 1_000;
/// The most bytes of states in one transaction; a larger one goes alone.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The most detached instances that may wait to be written.
pub(super) const MAX_DETACHED: usize = 10_000;

/// Where the answer to an insert goes.
type Answer = oneshot::Sender<Result<(), Arc<StoreError>>>;

/// An instance to be inserted, and who waits for it.
struct Order {
    instance: NewInstance,
    /// Nobody, if it is detached.
    answer: Option<Answer>,
}

/// Where single inserts are put.
pub(super) struct Inserter {
    sender: mpsc::UnboundedSender<Order>,
    detached: AtomicUsize,
    /// Told whenever a detached instance is written or lost.
    written: Notify,
}

/// The other end of an [`Inserter`].
pub(super) struct Orders(mpsc::UnboundedReceiver<Order>);

impl Inserter {
    pub(super) fn new() -> (Self, Orders) {
        let (sender, orders) = mpsc::unbounded_channel();
        (Self { sender, detached: AtomicUsize::new(0), written: Notify::new() }, Orders(orders))
    }

    /// Inserts an instance, together with whatever else is inserted now; `None` if the engine is gone.
    pub(super) async fn insert(&self, instance: NewInstance) -> Option<Result<(), Arc<StoreError>>> {
        let (answer, answered) = oneshot::channel();
        self.sender.send(Order { instance, answer: Some(answer) }).ok()?;
        answered.await.ok()
    }

    /// Takes an instance that is written some time soon; false if too many wait or the engine is gone.
    pub(super) fn insert_detached(&self, instance: NewInstance) -> bool {
        if self.detached.fetch_add(1, Ordering::Relaxed) >= MAX_DETACHED
            || self.sender.send(Order { instance, answer: None }).is_err()
        {
            self.detached.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Waits until every detached instance is written. Cancel-safe.
    pub(super) async fn drained(&self) {
        loop {
            let written = self.written.notified();
            if self.detached.load(Ordering::Acquire) == 0 {
                return;
            }
            written.await;
        }
    }

    fn settled_detached(&self) {
        self.detached.fetch_sub(1, Ordering::AcqRel);
        self.written.notify_one();
    }
}

/// Inserts until the engine is gone.
pub(super) async fn run(core: Arc<Core>, mut orders: Orders) {
    let mut outage = Outage::of("inserting", &core.events);
    let mut waiting: VecDeque<Order> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match orders.0.recv().await {
                Some(first) => waiting.push_back(first),
                None => return,
            }
        }
        while let Ok(more) = orders.0.try_recv() {
            waiting.push_back(more);
        }
        let mut parts = vec![next_batch(&mut waiting)];
        while let Some(mut part) = parts.pop() {
            let (instances, mut answers): (Vec<NewInstance>, Vec<_>) =
                part.drain(..).map(|order| (order.instance, order.answer)).unzip();
            match core.store.insert(&instances).await {
                Ok(()) => {
                    outage.worked();
                    settle(&core, instances, answers);
                }
                // One that the database refuses must not fail the others.
                Err(StoreError::Rejected(_)) if instances.len() > 1 => {
                    let mut orders: Vec<Order> = instances
                        .into_iter()
                        .zip(answers)
                        .map(|(instance, answer)| Order { instance, answer })
                        .collect();
                    let second = orders.split_off(orders.len() / 2);
                    parts.push(second);
                    parts.push(orders);
                }
                Err(error) => {
                    let rejected = error.is_rejection();
                    let rest = outage.failed(&error);
                    let error = Arc::new(error);
                    let mut kept = Vec::new();
                    for (instance, answer) in instances.into_iter().zip(answers.drain(..)) {
                        match answer {
                            // One who stopped waiting needs no answer.
                            Some(answer) => drop(answer.send(Err(Arc::clone(&error)))),
                            None if rejected => {
                                core.inserter.settled_detached();
                                core.events.emit(Event::DetachedInsertLost {
                                    id: instance.id,
                                    error: error.chain(),
                                });
                            }
                            None => kept.push(Order { instance, answer: None }),
                        }
                    }
                    if !kept.is_empty() {
                        tokio::time::sleep(rest).await;
                        parts.push(kept);
                    }
                }
            }
        }
    }
}

fn next_batch(waiting: &mut VecDeque<Order>) -> Vec<Order> {
    let mut bytes = 0;
    let fits = waiting
        .iter()
        .take(MAX_BATCH)
        .take_while(|order| {
            bytes += order.instance.state.len();
            bytes <= MAX_BYTES
        })
        .count();
    waiting.drain(..fits.max(1)).collect()
}

/// Tells whoever waits, and whoever may run the rows.
fn settle(core: &Core, instances: Vec<NewInstance>, answers: Vec<Option<Answer>>) {
    let mut queues: Vec<(Arc<str>, usize)> = Vec::new();
    for instance in &instances {
        if instance.start.is_now() {
            match queues.iter_mut().find(|(queue, _)| *queue == instance.queue) {
                Some((_, count)) => *count += 1,
                None => queues.push((Arc::clone(&instance.queue), 1)),
            }
        } else {
            committed(core, &instance.queue, instance.start, 1);
        }
    }
    for (queue, count) in queues {
        core.rows_committed(&queue, count);
    }
    for answer in answers {
        match answer {
            Some(answer) => drop(answer.send(Ok(()))),
            None => core.inserter.settled_detached(),
        }
    }
}
