//! What a case does, in terms that mean something in any state: `instance: 5` is the fifth one there, counted around.

use gen_durable::store::KeyScope;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// One thing that somebody does to a store.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    /// Inserts instances without keys.
    Insert {
        count: u8,
        delay: Delay,
        machine: u8,
        urgency: u8,
    },
    /// Inserts instances with keys.
    InsertKeyed {
        keys: Vec<(u8, KeyScope)>,
        machine: u8,
    },
    /// Inserts the instances of the last insert once more, as after a lost answer.
    InsertAgain,
    Claim {
        worker: u8,
        limit: u8,
        alone: bool,
    },
    /// Commits outcomes of what a worker holds. One that holds nothing claims before.
    Flush {
        worker: u8,
        outcomes: Vec<(u8, Outcome)>,
        delete: bool,
    },
    /// Commits an outcome in a transaction of its step's own.
    Finish {
        worker: u8,
        outcome: (u8, Outcome),
        delete: bool,
    },
    /// Commits the outcomes of the last flush once more, as after a lost answer.
    FlushAgain,
    /// Commits outcomes of rows that a worker held once: it lost them, or has committed one already.
    FlushLate {
        outcomes: Vec<(u8, Outcome)>,
        delete: bool,
    },
    Signal {
        letters: Vec<Envelope>,
    },
    Promote,
    /// A worker dies, and another takes its place.
    Crash {
        worker: u8,
    },
    Reclaim,
    Release {
        worker: u8,
        rows: Vec<u8>,
    },
    Cancel {
        instance: u8,
        cascade: bool,
    },
    Cascade {
        limit: u8,
    },
    Join {
        limit: u8,
    },
    /// Lets an instance run again, a failed one if there is any.
    Retry {
        instance: u8,
    },
    Sweep,
    Watch {
        instance: u8,
    },
    Find {
        key: u8,
        machine: u8,
    },
    Children {
        instance: u8,
    },
    Beat {
        worker: u8,
    },
}

/// What a step returns.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Next {
        step: u8,
        delay: Delay,
        ahead: bool,
    },
    /// A retry.
    Again {
        anew: bool,
        delay: Delay,
        error: bool,
        counted: bool,
    },
    Wait {
        step: u8,
        names: Vec<u8>,
        timeout: Option<Delay>,
    },
    FanOut {
        step: u8,
        children: Vec<Option<u8>>,
    },
    Done,
    Stop {
        cascade: bool,
    },
    Cancelled,
}

/// Nothing here depends on how long anything takes: what is due at all is due at once, or an hour from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delay {
    Now,
    /// In a microsecond.
    Soon,
    /// In an hour.
    Later,
}

/// A signal.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub(crate) to: Address,
    pub(crate) name: u8,
    pub(crate) once: Option<u8>,
    /// Whether it is for another machine than its target's.
    pub(crate) astray: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Address {
    Instance(u8),
    Key(u8),
    Nobody,
}

/// The operations of a case.
pub(crate) fn case() -> impl Strategy<Value = Vec<Operation>> {
    vec(operation(), 1..25)
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let worker = || 0..2u8;
    let instance = any::<u8>;
    prop_oneof![
        3 => (1..3u8, delay(), 0..3u8, 0..3u8).prop_map(|(count, delay, machine, urgency)| Insert { count, delay, machine, urgency }),
        3 => (vec((0..2u8, scope()), 1..3), 0..3u8).prop_map(|(keys, machine)| InsertKeyed { keys, machine }),
        1 => Just(InsertAgain),
        6 => (worker(), 1..4u8, prop::bool::weighted(0.8)).prop_map(|(worker, limit, alone)| Claim { worker, limit, alone }),
        14 => (worker(), outcomes(), prop::bool::weighted(0.3)).prop_map(|(worker, outcomes, delete)| Flush { worker, outcomes, delete }),
        4 => (worker(), (any::<u8>(), outcome()), any::<bool>())
            .prop_map(|(worker, outcome, delete)| Finish { worker, outcome, delete }),
        2 => Just(FlushAgain),
        2 => (outcomes(), any::<bool>()).prop_map(|(outcomes, delete)| FlushLate { outcomes, delete }),
        6 => vec(envelope(), 1..4).prop_map(|letters| Signal { letters }),
        3 => Just(Promote),
        2 => worker().prop_map(|worker| Crash { worker }),
        2 => Just(Reclaim),
        1 => (worker(), vec(any::<u8>(), 1..3)).prop_map(|(worker, rows)| Release { worker, rows }),
        3 => (instance(), any::<bool>()).prop_map(|(instance, cascade)| Cancel { instance, cascade }),
        2 => (1..4u8).prop_map(|limit| Cascade { limit }),
        1 => (1..4u8).prop_map(|limit| Join { limit }),
        3 => instance().prop_map(|instance| Retry { instance }),
        1 => Just(Sweep),
        1 => instance().prop_map(|instance| Watch { instance }),
        1 => (0..2u8, 0..3u8).prop_map(|(key, machine)| Find { key, machine }),
        1 => instance().prop_map(|instance| Children { instance }),
        1 => worker().prop_map(|worker| Beat { worker }),
    ]
}

fn outcomes() -> impl Strategy<Value = Vec<(u8, Outcome)>> {
    vec((any::<u8>(), outcome()), 1..4)
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let step = || 0..3u8;
    let names = prop_oneof![
        (0..3u8).prop_map(|name| vec![name]),
        (0..3u8, 1..3u8).prop_map(|(name, other)| vec![name, (name + other) % 3]),
    ];
    let child = option::weighted(0.2, 0..2u8);
    prop_oneof![
        4 => (step(), delay(), prop::bool::weighted(0.3)).prop_map(|(step, delay, ahead)| Outcome::Next { step, delay, ahead }),
        3 => (any::<bool>(), delay(), any::<bool>(), any::<bool>())
            .prop_map(|(anew, delay, error, counted)| Outcome::Again { anew, delay, error, counted }),
        6 => (step(), names, option::of(delay())).prop_map(|(step, names, timeout)| Outcome::Wait { step, names, timeout }),
        4 => (step(), vec(child, 0..4)).prop_map(|(step, children)| Outcome::FanOut { step, children }),
        3 => Just(Outcome::Done),
        3 => any::<bool>().prop_map(|cascade| Outcome::Stop { cascade }),
        1 => Just(Outcome::Cancelled),
    ]
}

fn delay() -> impl Strategy<Value = Delay> {
    prop_oneof![5 => Just(Delay::Now), 2 => Just(Delay::Soon), 1 => Just(Delay::Later)]
}

fn scope() -> impl Strategy<Value = KeyScope> {
    prop_oneof![3 => Just(KeyScope::Live), 1 => Just(KeyScope::Row), 1 => Just(KeyScope::Address)]
}

fn envelope() -> impl Strategy<Value = Envelope> {
    let to = prop_oneof![
        8 => any::<u8>().prop_map(Address::Instance),
        2 => (0..2u8).prop_map(Address::Key),
        1 => Just(Address::Nobody),
    ];
    (to, 0..3u8, option::weighted(0.4, 0..2u8), prop::bool::weighted(0.05))
        .prop_map(|(to, name, once, astray)| Envelope { to, name, once, astray })
}
