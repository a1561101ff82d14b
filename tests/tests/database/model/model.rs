//! What a store is to do, in memory: written from what `trait Store` promises, without a look at any statement.

use std::collections::BTreeSet;

use gen_durable::store::{Flushed, KeyScope, NewInstance, Transition};
use gen_durable::{InstanceId, Status, WorkerId};

use super::operations::Delay;

/// From how many crashes on a row runs alone.
const CRASHES_OF_A_SUSPECT: u32 = 2;

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) instances: Vec<Instance>,
    pub(crate) dead: BTreeSet<WorkerId>,
    pub(super) letters: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) new: NewInstance,
    pub(crate) family: &'static str,
    /// Its row is deleted.
    pub(crate) is_gone: bool,
    pub(crate) status: Status,
    pub(crate) step: &'static str,
    pub(crate) state: String,
    pub(crate) revision: i64,
    pub(crate) attempt: u32,
    pub(crate) failures: u32,
    pub(crate) crashes: u32,
    /// Who has it or had it last, and by which claim.
    pub(crate) holder: Option<(WorkerId, i64)>,
    pub(crate) is_watched: bool,
    /// Whether its worker is asked to cancel it.
    pub(crate) is_asked: bool,
    /// Whether it takes its children with it.
    pub(super) cascades: bool,
    /// Whether its parent knows that it has ended.
    pub(super) is_told: bool,
    pub(crate) inbox: Vec<Letter>,
    /// Keys of the signals that it was sent.
    pub(super) used: BTreeSet<String>,
    pub(crate) awaits: Vec<&'static str>,
    pub(crate) timed_out: bool,
    pub(crate) seen: u64,
    /// When it is due, if it is scheduled or waits; `None` is never.
    pub(crate) due: Option<Delay>,
    pub(crate) round: Option<i64>,
    pub(crate) pending: u32,
    pub(crate) output: Option<String>,
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) payload: String,
}

/// What a step was handed when its row was claimed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handed {
    /// The signals that it waited for.
    awaited: Vec<u64>,
    /// The last signal that it cannot be waiting for any more.
    upto: u64,
}

/// What proves that a worker owns a row, and what it knows of it.
#[derive(Debug, Clone)]
pub(crate) struct Hand {
    pub(crate) worker: WorkerId,
    pub(crate) row: gen_durable::store::Claimed,
    pub(crate) handed: Handed,
}

impl Instance {
    fn new(new: &NewInstance, family: &'static str, delay: Delay) -> Self {
        Self {
            family,
            is_gone: false,
            status: if delay == Delay::Now { Status::Ready } else { Status::Scheduled },
            step: new.step,
            state: new.state.clone(),
            new: new.clone(),
            revision: 0,
            attempt: 0,
            failures: 0,
            crashes: 0,
            holder: None,
            is_watched: false,
            is_asked: false,
            cascades: false,
            is_told: false,
            inbox: Vec::new(),
            used: BTreeSet::new(),
            awaits: Vec::new(),
            timed_out: false,
            seen: 0,
            due: Some(delay),
            round: None,
            pending: 0,
            output: None,
            error: None,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.is_gone && !self.has_ended()
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.is_gone && self.status.is_terminal()
    }

    pub(super) fn scope(&self) -> Option<KeyScope> {
        self.new.key.as_ref().map(|key| key.scope)
    }

    pub(super) fn has_key(&self, family: &str, key: &str) -> bool {
        !self.is_gone && self.new.key.as_ref().is_some_and(|own| self.family == family && own.key == key)
    }

    /// Whether nobody else may have its key.
    pub(super) fn keeps_key(&self) -> bool {
        match self.scope() {
            Some(KeyScope::Live) => self.is_live(),
            Some(KeyScope::Row) => !self.is_gone,
            _ => false,
        }
    }

    pub(super) fn wake(&mut self) {
        self.status = Status::Ready;
    }

    fn run_after(&mut self, delay: Delay) {
        self.status = if delay == Delay::Now { Status::Ready } else { Status::Scheduled };
        self.due = Some(delay);
    }

    pub(super) fn end(&mut self, status: Status) {
        self.status = status;
        self.is_asked = false;
        self.pending = 0;
        self.inbox.clear();
        self.used.clear();
    }

    /// Goes on to another state.
    fn go_on(&mut self, step: &'static str, state: &str) {
        (self.step, self.state) = (step, state.to_owned());
        (self.attempt, self.failures, self.crashes) = (0, 0, 0);
        self.awaits.clear();
        (self.timed_out, self.seen, self.round) = (false, 0, None);
    }

    /// Hands its row to nobody.
    pub(super) fn let_go(&mut self) {
        if self.is_asked { self.end(Status::Cancelled) } else { self.wake() }
    }

    fn consume(&mut self, handed: &Handed) {
        self.inbox.retain(|letter| !handed.awaited.contains(&letter.number));
    }

    fn handed(&self) -> Handed {
        let upto = match (self.timed_out, self.inbox.last()) {
            (false, Some(last)) => last.number.max(self.seen),
            _ => self.seen,
        };
        let awaited =
            self.inbox.iter().filter(|letter| self.awaits.contains(&&*letter.name) && letter.number <= upto);
        Handed { awaited: awaited.map(|letter| letter.number).collect(), upto }
    }
}

impl Model {
    pub(crate) fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.iter().find(|row| row.new.id == id && !row.is_gone)
    }

    pub(super) fn get_mut(&mut self, id: InstanceId) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|row| row.new.id == id && !row.is_gone)
    }

    /// Who has a key that nobody else may have.
    pub(crate) fn holder(&self, family: &str, key: &str) -> Option<InstanceId> {
        self.instances.iter().find(|row| row.has_key(family, key) && row.keeps_key()).map(|row| row.new.id)
    }

    /// Inserts an instance, unless it is there or another has its key, and says which.
    pub(crate) fn insert(
        &mut self,
        new: &NewInstance,
        family: &'static str,
        delay: Delay,
    ) -> Option<InstanceId> {
        if self.get(new.id).is_some() {
            return None;
        }
        let key = new.key.as_ref().filter(|key| key.scope != KeyScope::Address);
        let taken = key.and_then(|key| self.holder(family, &key.key));
        if taken.is_none() {
            self.instances.push(Instance::new(new, family, delay));
        }
        taken
    }

    /// The rows that a claim takes, most urgent first, and whether suspects are among those that are ready.
    pub(crate) fn claim(
        &mut self,
        worker: WorkerId,
        claim: i64,
        limit: usize,
        alone: bool,
    ) -> (Vec<(InstanceId, Handed)>, bool) {
        let mut due: Vec<&mut Instance> =
            self.instances.iter_mut().filter(|row| row.is_live() && row.status == Status::Ready).collect();
        due.sort_by_key(|row| row.new.priority);
        let suspect = |row: &Instance| row.crashes >= CRASHES_OF_A_SUSPECT;
        let there_are = due.iter().any(|row| suspect(row));
        if self.dead.contains(&worker) {
            return (Vec::new(), there_are);
        }
        let runs_alone = due.first().is_some_and(|row| suspect(row));
        due.truncate(match (runs_alone, alone) {
            (true, true) => 1,
            (true, false) => 0,
            (false, _) => limit,
        });
        let taken = due.into_iter().filter(|row| runs_alone || !suspect(row)).map(|row| {
            (row.status, row.holder) = (Status::Executing, Some((worker, claim)));
            (row.new.id, row.handed())
        });
        (taken.collect(), there_are)
    }

    /// Whether a worker still owns its row.
    pub(crate) fn holds(&self, hand: &Hand) -> bool {
        self.get(hand.row.id).is_some_and(|row| row.held() == Some((hand.worker, hand.row.held())))
    }

    /// Whether a fan-out has a child whose key is taken, so that it cannot be committed.
    pub(crate) fn refuses(&self, hand: &Hand, transition: &Transition) -> bool {
        let owned = self.get(hand.row.id).filter(|_| self.holds(hand));
        let Transition::FanOut { children, .. } = transition else { return false };
        let keys: Vec<&str> = children
            .iter()
            .filter_map(|child| child.instance.key.as_ref())
            .map(|key| key.key.as_str())
            .collect();
        let family = children.first().map_or("", |child| child.machine);
        let is_taken = |at: usize| keys[..at].contains(&keys[at]) || self.holder(family, keys[at]).is_some();
        owned.is_some_and(|row| !row.is_asked) && (0..keys.len()).any(is_taken)
    }

    /// Commits an outcome.
    pub(crate) fn commit(
        &mut self,
        hand: &Hand,
        transition: &Transition,
        keeps_claim: bool,
        delete: bool,
        delay: Delay,
    ) -> Flushed {
        let Some(row) = self.get_mut(hand.row.id) else { return Flushed::Stale };
        if row.holder != Some((hand.worker, hand.row.claim)) {
            return Flushed::Stale;
        }
        let committed = |row: &Instance| Flushed::Committed { status: row.status, watched: row.is_watched };
        if row.status != Status::Executing || row.revision != hand.row.revision {
            return if row.revision == hand.row.revision + 1 { committed(row) } else { Flushed::Stale };
        }
        row.revision += 1;
        row.error = None;
        let is_cancelled = row.is_asked && !transition.is_terminal();
        let mut children = Vec::new();
        match transition {
            Transition::Retry { error, .. } if is_cancelled => {
                row.error.clone_from(error);
                row.end(Status::Cancelled);
            }
            _ if is_cancelled => row.end(Status::Cancelled),
            Transition::Next { step, state, .. } => {
                row.consume(&hand.handed);
                row.go_on(step, state);
                match delay {
                    // A step that runs ahead is handed no signals.
                    Delay::Now if keeps_claim && row.inbox.is_empty() => {}
                    delay => row.run_after(delay),
                }
            }
            Transition::Wait { step, state, signals, timeout, .. } => {
                let is_renewed = *step == row.step;
                let (upto, before) = (hand.handed.upto, row.awaits.clone());
                if !is_renewed {
                    row.consume(&hand.handed);
                }
                let is_new = |letter: &&Letter| {
                    !(is_renewed && letter.number <= upto && before.contains(&&*letter.name))
                };
                let has_come = row.inbox.iter().filter(is_new).any(|letter| signals.contains(&&*letter.name));
                row.go_on(step, state);
                row.awaits.clone_from(signals);
                row.seen = if is_renewed { upto } else { 0 };
                row.status = if has_come { Status::Ready } else { Status::Waiting };
                row.due = timeout.map(|_| delay);
            }
            Transition::FanOut { step, state, children: new } => {
                row.consume(&hand.handed);
                row.go_on(step, state);
                row.round = Some(row.revision);
                row.pending = u32::try_from(new.len()).unwrap_or(u32::MAX);
                row.status = if new.is_empty() { Status::Ready } else { Status::Joining };
                children.extend(new.iter().map(|child| (child.instance.clone(), child.machine)));
            }
            Transition::Retry { state, error, counted, .. } => {
                row.attempt += 1;
                row.failures += u32::from(*counted);
                row.error.clone_from(error);
                if let Some(state) = state {
                    row.state.clone_from(state);
                }
                row.run_after(delay);
            }
            Transition::Done { output } => {
                row.output = Some(output.clone());
                row.end(Status::Done);
                row.is_gone = delete
                    && !row.is_watched
                    && !row.cascades
                    && row.new.parent.is_none()
                    && row.scope() != Some(KeyScope::Row);
            }
            Transition::Stop { reason, cascade } => {
                row.error = Some(reason.clone());
                row.cascades |= cascade;
                row.end(Status::Failed);
            }
            Transition::Cancel => row.end(Status::Cancelled),
            Transition::Committed(_) => unreachable!("only the engine makes these"),
        }
        let fate = committed(row);
        for (child, family) in children {
            self.insert(&child, family, Delay::Now);
        }
        fate
    }
}
