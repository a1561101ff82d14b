//! Inserts with correlation keys. Those that arrive while some are under way go together in the next statement; one whose
//! key an open transaction holds waits by itself and holds up no other.

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
pub(super) async fn run(core: Arc<Core>, mut orders: mpsc::UnboundedReceiver<Order>) {
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
            let is_open = match &inserted {
                Ok(fates) => fates.contains(&Inserted::Locked),
                Err(error) => error.is_rejection(),
            };
            if is_open && part.len() > 1 {
                let second = part.split_off(part.len() / 2);
                parts.push(second);
                parts.push(part);
                continue;
            }
            match inserted {
                Ok(fates) => {
                    outage.worked();
                    part.into_iter().zip(fates).for_each(|(order, fate)| settle(&core, order, fate));
                }
                Err(error) => {
                    if !error.is_rejection() {
                        outage.failed(&error);
                    }
                    let error = Arc::new(error);
                    for order in part {
                        // One who stopped waiting needs no answer.
                        let _ = order.answer.send(Err(Arc::clone(&error)));
                    }
                }
            }
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

fn settle(core: &Arc<Core>, order: Order, fate: Inserted) {
    if fate == Inserted::Locked && order.since.elapsed() < PATIENCE && !core.is_stopping() {
        let core = Arc::clone(core);
        tokio::spawn(async move {
            tokio::time::sleep(REST).await;
            // If the engine is gone, so is the answer.
            let _ = core.keyed.sender.send(order);
        });
        return;
    }
    if fate == Inserted::Created {
        committed(core, &order.instance.queue, order.instance.start, 1);
    }
    // One who stopped waiting needs no answer.
    let _ = order.answer.send(Ok(fate));
}
