//! Inserts with correlation keys. Those that arrive while some are under way go together in the next statement; one whose
//! key an open transaction holds waits by itself and holds up no other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::core::Core;
use super::insert::committed;
use crate::error::Error;
use crate::store::{Inserted, NewInstance, StoreError};
use crate::telemetry::Outage;

/// The most instances in one transaction.
const MAX_BATCH: usize = 1_000;
/// The most bytes of states in one transaction; a larger one goes alone.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Into how many parts a batch is split in which a key is held, and how many are few enough to be tried one by one.
const SPLIT: usize = 8;
const FEW: usize = 16;
/// How long a transaction that holds a key may stay open before its rival is told so, and how often to look.
const PATIENCE: Duration = Duration::from_secs(120);
const REST: Duration = Duration::from_millis(20);

/// What became of an insert.
pub(super) type Answer = Result<Inserted, Arc<StoreError>>;

/// An instance with a key to be inserted, and who waits for it.
pub(super) struct Order {
    instance: NewInstance,
    since: Instant,
    answer: oneshot::Sender<Answer>,
}

/// Where inserts with keys are put.
pub(super) struct Keyed {
    sender: mpsc::UnboundedSender<Order>,
}

impl Keyed {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (sender, orders) = mpsc::unbounded_channel();
        (Self { sender }, orders)
    }

    /// Inserts an instance unless its key is taken; `None` if the engine is gone. [`Inserted::Locked`] when a transaction
    /// holds the key for too long.
    pub(super) async fn insert(&self, instance: NewInstance) -> Option<Answer> {
        let (answer, answered) = oneshot::channel();
        self.sender.send(Order { instance, since: Instant::now(), answer }).ok()?;
        answered.await.ok()
    }
}

/// Inserts until the engine is gone.
pub(super) async fn run(core: Arc<Core>, orders: mpsc::UnboundedReceiver<Order>) {
    let (held, held_orders) = mpsc::unbounded_channel();
    tokio::join!(insert_together(&core, orders, &held), insert_held(&core, held_orders));
}

async fn insert_together(
    core: &Arc<Core>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    held: &mpsc::UnboundedSender<Order>,
) {
    let mut outage = Outage::of("inserting", &core.events);
    let mut waiting = Vec::new();
    while orders.recv_many(&mut waiting, MAX_BATCH).await > 0 {
        let mut parts = Vec::new();
        while !waiting.is_empty() {
            let rest = waiting.split_off(fitting(&waiting));
            parts.push(std::mem::replace(&mut waiting, rest));
        }
        parts.reverse();
        while let Some(mut part) = parts.pop() {
            let instances: Vec<NewInstance> = part.iter().map(|order| order.instance.clone()).collect();
            let inserted = core.store.insert_keyed(&instances).await;
            let is_held = inserted.as_ref().is_ok_and(|fates| fates.contains(&Inserted::Locked));
            let is_refused = inserted.as_ref().is_err_and(StoreError::is_rejection);
            if is_held && part.len() <= FEW {
                // The other end lives as long as this.
                part.into_iter().for_each(|order| drop(held.send(order)));
                continue;
            }
            if (is_held || is_refused) && part.len() > 1 {
                // Each try that meets a held key waits for a moment: few tries, rather than the least data.
                let size = part.len().div_ceil(SPLIT);
                while part.len() > size {
                    parts.push(part.split_off(part.len() - size));
                }
                parts.push(part);
                continue;
            }
            match inserted {
                Ok(fates) => {
                    outage.worked();
                    part.into_iter().zip(fates).for_each(|(order, fate)| settle(core, order, fate));
                }
                Err(error) => {
                    if !error.is_rejection() {
                        outage.failed(&error);
                    }
                    let error = Arc::new(error);
                    part.into_iter().for_each(|order| order.answer(Err(Arc::clone(&error))));
                }
            }
        }
    }
}

/// Tries those whose key an open transaction holds, one after the other: each try waits for a moment, and they hold up
/// no others by that.
async fn insert_held(core: &Core, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match orders.recv().await {
                Some(order) => waiting.push_back(order),
                None => return,
            }
        }
        for _ in 0..waiting.len() {
            // Those that came meanwhile go first: some were only beside one that is held.
            while let Ok(order) = orders.try_recv() {
                waiting.push_front(order);
            }
            let Some(order) = waiting.pop_front() else { break };
            match core.store.insert_keyed(std::slice::from_ref(&order.instance)).await {
                Ok(fates) => match fates.first() {
                    Some(Inserted::Locked) if order.since.elapsed() < PATIENCE && !core.is_stopping() => {
                        waiting.push_back(order);
                    }
                    fate => settle(core, order, fate.copied().unwrap_or(Inserted::Locked)),
                },
                Err(error) => order.answer(Err(Arc::new(error))),
            }
        }
        if !waiting.is_empty() {
            tokio::time::sleep(REST).await;
        }
    }
}

/// Inserts many instances with keys in one transaction, and waits while another one holds some of the keys.
pub(super) async fn insert_all(core: &Core, instances: &[NewInstance]) -> Result<Vec<Inserted>, Error> {
    let since = Instant::now();
    loop {
        if core.is_stopping() {
            return Err(Error::Stopped);
        }
        let fates = core.store.insert_keyed(instances).await.map_err(Error::store("inserting instances"))?;
        if !fates.contains(&Inserted::Locked) {
            return Ok(fates);
        }
        if since.elapsed() > PATIENCE {
            let key = instances.first().and_then(|instance| instance.key.as_ref());
            return Err(Error::KeyBusy { key: key.map(|key| key.key.clone()).unwrap_or_default() });
        }
        tokio::time::sleep(REST).await;
    }
}

fn fitting(orders: &[Order]) -> usize {
    let mut bytes = 0;
    let fits = orders.iter().take_while(|order| {
        bytes += order.instance.size();
        bytes <= MAX_BYTES
    });
    fits.count().clamp(1, orders.len())
}

fn settle(core: &Core, order: Order, fate: Inserted) {
    if fate == Inserted::Created {
        committed(core, &order.instance.queue, order.instance.start, 1);
    }
    order.answer(Ok(fate));
}

impl Order {
    fn answer(self, answer: Answer) {
        // One who stopped waiting needs no answer.
        let _ = self.answer.send(answer);
    }
}
