//! User code that panics wherever it is called from.

use std::fmt;
use std::sync::Arc;

use gen_durable::prelude::*;
use gen_durable::{InstanceResult, Status};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Bed;
use crate::support::{SOON, Tally};

/// Where user code panics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Place {
    Step,
    Serialize,
    Deserialize,
    DropOfLocal,
    DropOfState,
    DropOfFuture,
    DropOfError,
    Display,
    OddPayload,
    DropOfPayload,
}

const ALL: [Place; 10] = [
    Place::Step,
    Place::Serialize,
    Place::Deserialize,
    Place::DropOfLocal,
    Place::DropOfState,
    Place::DropOfFuture,
    Place::DropOfError,
    Place::Display,
    Place::OddPayload,
    Place::DropOfPayload,
];

/// Panics when its place is come, but never twice at once, which would end the process.
#[derive(Debug)]
struct Trap(Place);

impl Trap {
    fn spring(&self, here: Place) {
        if self.0 == here && !std::thread::panicking() {
            panic!("the trap sprang");
        }
    }
}

impl Serialize for Trap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.spring(Place::Serialize);
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Trap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let trap = Self(Place::deserialize(deserializer)?);
        trap.spring(Place::Deserialize);
        Ok(trap)
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.spring(Place::DropOfState);
    }
}

/// Panics when dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the bomb went off");
        }
    }
}

/// An error that cannot be written, or not be dropped.
#[derive(Debug)]
struct Nasty(Option<Bomb>);

impl fmt::Debug for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bomb")
    }
}

impl fmt::Display for Nasty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(_) => f.write_str("handle with care"),
            None => panic!("unspeakable"),
        }
    }
}

impl std::error::Error for Nasty {}

#[durable_fsm(name = "minefield", retry(max_attempts = 2, backoff = "1ms"))]
enum Minefield {
    #[state(initial, next(Enter), finishes, timeout = "500ms")]
    Approach { place: Place, safe: bool },
    #[state(finishes)]
    Enter { trap: Trap },
}

#[derive(Clone, Default)]
struct Sappers(Arc<Tally>);

impl MinefieldSteps for Sappers {
    async fn approach(&self, s: Approach, cx: &mut Context<Approach>) -> StepResult<Approach> {
        if s.safe {
            return Ok(cx.done(()));
        }
        self.0.note(cx.id());
        match s.place {
            Place::Step => panic!("a mine"),
            Place::DropOfLocal => {
                let _bomb = Bomb;
                Ok(cx.done(()))
            }
            Place::DropOfFuture => {
                // Dropped when the step times out.
                let _bomb = Bomb;
                std::future::pending().await
            }
            Place::DropOfError => Err(Nasty(Some(Bomb)).into()),
            Place::Display => Err(Nasty(None).into()),
            Place::OddPayload => std::panic::panic_any(42),
            Place::DropOfPayload => std::panic::panic_any(Nasty(Some(Bomb))),
            Place::Serialize | Place::Deserialize | Place::DropOfState => {
                Ok(cx.next(Enter { trap: Trap(s.place) }))
            }
        }
    }

    async fn enter(&self, _: Enter, cx: &mut Context<Enter>) -> StepResult<Enter> {
        self.0.note(cx.id());
        Ok(cx.done(()))
    }
}

/// R19, R18
#[tokio::test]
async fn a_panic_anywhere_in_user_code_is_a_counted_failure_and_the_engine_goes_on() {
    let bed = Bed::create().await;
    let steps = Sappers::default();
    let machine = Minefield::machine(steps.clone());
    let engine = bed.engine().queue("default", 2).register(machine).start().await.unwrap();
    for place in ALL {
        let mined = engine.insert(Approach { place, safe: false }).await.unwrap();
        let result = mined.result().within(SOON).await.unwrap();
        let InstanceResult::Failed { reason, .. } = result else { panic!("{place:?}: {result:?}") };
        let said = match place {
            Place::Step => "a mine",
            Place::Serialize | Place::Deserialize | Place::DropOfState => "the trap sprang",
            Place::DropOfLocal | Place::DropOfFuture | Place::DropOfError => "the bomb went off",
            Place::Display => "unspeakable",
            Place::OddPayload | Place::DropOfPayload => "panic without a message",
        };
        assert!(reason.contains(said), "{place:?}: {reason}");
        // The step `enter` is not reached when its state does not decode.
        let starts = if place == Place::Deserialize { 1 } else { 2 };
        assert_eq!(steps.0.of(mined.id()), starts, "{place:?}: {reason}");
        let end = engine.get(mined.id()).await.unwrap().unwrap();
        assert_eq!((end.status, end.failures, end.crashes), (Status::Failed, 1, 0), "{place:?}");
        // Both slots still serve.
        let safe = (0..4).map(|_| Approach { place, safe: true });
        for id in engine.insert_all(safe.collect::<Vec<_>>()).await.unwrap() {
            engine.result::<Minefield>(id).within(SOON).await.unwrap().done().unwrap();
        }
    }
}
