//! Does the same to a store and to the model, and compares what they say.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gen_durable::store::{
    Claimed, Inserted, Joined, MachineId, Mail, NewInstance, NewKey, NewSignal, Retrying, Start, Store,
    StoreError, Target,
};
use gen_durable::{InstanceId, Status, WorkerId};
use sqlx::PgPool;
use uuid::Uuid;

use super::commits::Batch;
use super::compare;
use super::model::{Hand, Model};
use super::operations::{Address, Delay, Envelope, Operation};

pub(crate) const QUEUE: &str = "default";
/// More than a case has.
pub(super) const ALL: u32 = 100;
/// So many instances are enough for anything to happen.
pub(super) const ENOUGH: usize = 12;
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// Name and version.
pub(crate) const MACHINES: [(&str, u32); 3] = [("machine", 1), ("machine", 2), ("other", 1)];
pub(crate) const STEPS: [&str; 3] = ["first", "second", "third"];
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];
pub(crate) const KEYS: [&str; 2] = ["k", "l"];

pub(crate) type Verdict<T = ()> = Result<T, String>;

macro_rules! same {
    ($what:expr, $store:expr, $model:expr) => {{
        let (store, model) = (&$store, &$model);
        if store != model {
            return Err(format!("{}: the store says {store:?}, the model {model:?}", $what));
        }
    }};
}
pub(super) use same;

/// A store and the model of it.
pub(crate) struct Play {
    pub(super) store: Arc<dyn Store>,
    pub(super) model: Model,
    pub(super) machines: Vec<MachineId>,
    pub(super) workers: Vec<WorkerId>,
    /// What the workers hold.
    pub(super) hands: Vec<Hand>,
    /// What they held once.
    pub(super) late: Vec<Hand>,
    last_insert: (Vec<NewInstance>, Delay),
    pub(super) last_flush: Option<Batch>,
    /// Numbers of signals in the model, by those in the store.
    pub(super) numbers: HashMap<i64, u64>,
    count: u32,
    locks: Option<PgPool>,
}

pub(super) fn asked<T>(answer: Result<T, StoreError>) -> Verdict<T> {
    answer.map_err(|error| format!("the store fails: {error:?}"))
}

impl Play {
    /// A play on a store that knows no machines and no workers.
    pub(crate) async fn prepare(store: Arc<dyn Store>, locks: Option<PgPool>) -> Verdict<Self> {
        let machines = asked(store.register_machines(&MACHINES).await)?;
        let mut play = Self {
            store,
            model: Model::default(),
            machines,
            workers: Vec::new(),
            hands: Vec::new(),
            late: Vec::new(),
            last_insert: (Vec::new(), Delay::Now),
            last_flush: None,
            numbers: HashMap::new(),
            count: 0,
            locks,
        };
        for _ in 0..2 {
            let worker = play.hire().await?;
            play.workers.push(worker);
        }
        Ok(play)
    }

    /// Begins with two instances.
    pub(crate) async fn begin(&mut self) -> Verdict {
        self.model = Model { dead: std::mem::take(&mut self.model.dead), ..Model::default() };
        self.hands.clear();
        self.late.clear();
        self.last_insert.0.clear();
        self.last_flush = None;
        self.numbers = HashMap::from([(0, 0)]);
        self.count = 0;
        let first = vec![self.instance(0, 1), self.instance(0, 1)];
        self.insert(first, Delay::Now).await
    }

    pub(super) async fn hire(&self) -> Verdict<WorkerId> {
        asked(self.store.register_worker("engine", "node").await)
    }

    pub(super) fn next(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    fn machine(&self, machine: u8) -> usize {
        usize::from(machine) % MACHINES.len()
    }

    /// A new instance. Each has a priority of its own: so their order is known.
    pub(super) fn instance(&mut self, machine: usize, urgency: u8) -> NewInstance {
        let count = self.next();
        NewInstance {
            id: InstanceId::from(Uuid::now_v7()),
            machine: self.machines[machine],
            step: STEPS[0],
            state: format!("{{\"n\":{count}}}"),
            queue: QUEUE.into(),
            priority: i16::from(urgency) * 1_000 + i16::try_from(count).unwrap_or(0),
            start: Start::After(Duration::ZERO),
            trace_context: None,
            key: None,
            parent: None,
        }
    }

    fn family(&self, new: &NewInstance) -> &'static str {
        let at = self.machines.iter().position(|machine| *machine == new.machine).unwrap_or(0);
        MACHINES[at].0
    }

    /// The version of an instance's machine.
    pub(super) fn version(&self, row: &super::model::Instance) -> u32 {
        let at = self.machines.iter().position(|machine| *machine == row.new.machine).unwrap_or(0);
        MACHINES[at].1
    }

    /// The instance that a number means, if there are any.
    fn picked(&self, number: u8) -> Option<InstanceId> {
        let count = self.model.instances.len();
        (count > 0).then(|| self.model.instances[usize::from(number) % count].new.id)
    }

    pub(crate) async fn perform(&mut self, operation: &Operation) -> Verdict {
        match operation {
            Operation::Insert { count, delay, machine, urgency } => {
                let machine = self.machine(*machine);
                let instances = (0..*count).map(|_| self.instance(machine, *urgency)).collect();
                self.insert(instances, *delay).await
            }
            Operation::InsertKeyed { keys, machine } => {
                let machine = self.machine(*machine);
                let mut instances = Vec::new();
                for (key, scope) in keys {
                    let key = KEYS[usize::from(*key) % KEYS.len()].to_owned();
                    let key = Some(NewKey { family: MACHINES[machine].0, key, scope: *scope });
                    instances.push(NewInstance { key, ..self.instance(machine, 1) });
                }
                self.insert(instances, Delay::Now).await
            }
            Operation::InsertAgain => {
                let (mut instances, delay) = self.last_insert.clone();
                // Nobody sends again what was swept meanwhile.
                let gone = |new: &NewInstance| {
                    self.model.instances.iter().any(|row| row.new.id == new.id && row.is_gone)
                };
                instances.retain(|new| !gone(new));
                self.insert(instances, delay).await
            }
            Operation::Claim { worker, limit, alone } => {
                self.claim(usize::from(*worker), u32::from(*limit), *alone).await
            }
            Operation::Flush { worker, outcomes, delete } => {
                let (worker, hands) = self.busy(usize::from(*worker)).await?;
                self.flush(worker, &hands, outcomes, *delete, false).await
            }
            Operation::Finish { worker, outcome, delete } => {
                let (worker, hands) = self.busy(usize::from(*worker)).await?;
                self.flush(worker, &hands, std::slice::from_ref(outcome), *delete, true).await
            }
            Operation::FlushAgain => match self.last_flush.clone() {
                Some(batch) => self.commit(batch).await,
                None => Ok(()),
            },
            Operation::FlushLate { outcomes, delete } => {
                let Some((number, _)) = outcomes.first().filter(|_| !self.late.is_empty()) else {
                    return Ok(());
                };
                let worker = self.late[usize::from(*number) % self.late.len()].worker;
                let hands: Vec<Hand> =
                    self.late.iter().filter(|hand| hand.worker == worker).cloned().collect();
                self.flush(worker, &hands, outcomes, *delete, false).await
            }
            Operation::Signal { letters } => self.signal(letters).await,
            Operation::Promote => self.promote().await,
            Operation::Crash { worker } => self.crash(usize::from(*worker)).await,
            Operation::Reclaim => {
                let reclaimed = asked(self.store.reclaim(ALL).await)?;
                let reclaimed: BTreeMap<WorkerId, u64> =
                    reclaimed.iter().map(|one| (one.worker, one.count)).collect();
                same!("reclaim", reclaimed, self.model.reclaim());
                self.join_all().await
            }
            Operation::Release { worker, rows } => {
                self.release(self.workers[usize::from(*worker)], rows).await
            }
            Operation::Cancel { instance, cascade } => {
                let Some(id) = self.picked(*instance) else { return Ok(()) };
                let (cancelling, joined) = asked(self.store.cancel(id, *cascade).await)?;
                same!("cancel", cancelling, self.model.cancel(id, *cascade));
                self.told(&joined)
            }
            Operation::Cascade { limit } => self.cascade(u32::from(*limit)).await,
            Operation::Join { limit } => {
                let joined = asked(self.store.join(u32::from(*limit)).await)?;
                same!("join", joined.queues, Vec::<String>::new());
                Ok(())
            }
            Operation::Retry { instance } => {
                let failed =
                    self.model.instances.iter().filter(|row| !row.is_gone && row.status == Status::Failed);
                let failed: Vec<InstanceId> = failed.map(|row| row.new.id).collect();
                let at = usize::from(*instance) % failed.len().max(1);
                let Some(id) = failed.get(at).copied().or_else(|| self.picked(*instance)) else {
                    return Ok(());
                };
                let retrying = asked(self.store.retry(id).await)?;
                same!("retry", retrying, self.model.retry(id));
                if matches!(retrying, Retrying::KeyTaken(_)) {
                    self.wait_for_locks().await;
                }
                Ok(())
            }
            Operation::Sweep => self.sweep().await,
            Operation::Watch { instance } => {
                let Some(id) = self.picked(*instance) else { return Ok(()) };
                asked(self.store.probe(&[id], true).await)?;
                self.model.watch(id);
                Ok(())
            }
            Operation::Find { key, machine } => {
                let (family, key) =
                    (MACHINES[self.machine(*machine)].0, KEYS[usize::from(*key) % KEYS.len()]);
                same!("find", asked(self.store.find(family, key).await)?, self.model.find(family, key));
                Ok(())
            }
            Operation::Children { instance } => {
                let Some(id) = self.picked(*instance) else { return Ok(()) };
                compare::children(self, id).await
            }
            Operation::Beat { worker } => compare::pulse(self, self.workers[usize::from(*worker)]).await,
        }
    }

    /// What the parents were told, in the store's words.
    pub(super) fn told(&mut self, joined: &Joined) -> Verdict {
        same!("a parent is ready", !joined.queues.is_empty(), self.model.tell_parents());
        same!("some are not told", joined.left, false);
        Ok(())
    }

    /// PostgreSQL answers with an error before it lets go of the locks.
    pub(super) async fn wait_for_locks(&self) {
        if let Some(pool) = &self.locks {
            let lock = "select id from gen_durable.instances for no key update";
            sqlx::query(lock).execute(pool).await.unwrap();
        }
    }

    /// Some stores tell parents at once, others leave it to this.
    pub(super) async fn join_all(&mut self) -> Verdict {
        for _ in 0..ENOUGH {
            if !asked(self.store.join(ALL).await)?.left {
                self.model.tell_parents();
                return Ok(());
            }
        }
        Err("joining does not end".into())
    }

    async fn insert(&mut self, mut instances: Vec<NewInstance>, delay: Delay) -> Verdict {
        let is_new = |new: &NewInstance| self.model.get(new.id).is_none();
        if instances.is_empty() || self.model.instances.len() >= ENOUGH && instances.iter().any(is_new) {
            return Ok(());
        }
        let after = match delay {
            Delay::Now => Duration::ZERO,
            Delay::Soon => Duration::from_micros(1),
            Delay::Later => HOUR,
        };
        instances.iter_mut().for_each(|new| new.start = Start::After(after));
        let mut fates = Vec::new();
        for new in &instances {
            let taken = self.model.insert(new, self.family(new), delay);
            fates.push(taken.map_or(Inserted::Created, Inserted::Exists));
        }
        if instances[0].key.is_some() {
            same!("insert", asked(self.store.insert_keyed(&instances).await)?, fates);
        } else {
            asked(self.store.insert(&instances).await)?;
        }
        self.last_insert = (instances, delay);
        Ok(())
    }

    pub(super) async fn claim(&mut self, worker: usize, limit: u32, alone: bool) -> Verdict {
        let worker = self.workers[worker];
        let claim = i64::from(self.next());
        let claims = compare::claim(self, worker, claim, limit, alone, &self.machines.clone()).await?;
        self.hands.extend(claims);
        Ok(())
    }

    async fn signal(&mut self, letters: &[Envelope]) -> Verdict {
        let mut signals = Vec::new();
        for letter in letters {
            let number = self.next();
            let (target, machine) = match letter.to {
                Address::Instance(number) => {
                    match self.model.instances.get(usize::from(number) % self.model.instances.len().max(1)) {
                        Some(row) => (Target::Id(row.new.id), row.family),
                        None => continue,
                    }
                }
                Address::Key(key) => (Target::Key(KEYS[usize::from(key) % KEYS.len()].into()), MACHINES[0].0),
                Address::Nobody => (Target::Id(Uuid::now_v7().into()), MACHINES[0].0),
            };
            signals.push(NewSignal {
                machine: if letter.astray { "nothing".into() } else { machine.into() },
                target,
                name: NAMES[usize::from(letter.name) % NAMES.len()].into(),
                payload: number.to_string(),
                dedup_key: letter.once.map(|key| format!("once {key}")),
            });
        }
        let answers = asked(self.store.signal(&signals).await)?;
        compare::delivered(&mut self.model, &signals, &answers)
    }
}

/// Nothing, or what came from outside.
pub(super) fn mail(row: &Claimed) -> Mail {
    row.mail.as_deref().cloned().unwrap_or_default()
}
