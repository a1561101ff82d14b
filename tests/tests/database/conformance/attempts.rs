//! How often a step that never succeeds is started, and what its end leaves behind.

use std::sync::Arc;

use gen_durable::prelude::*;
use gen_durable::{InstanceResult, Status};
use serde::{Deserialize, Serialize};

use super::Bed;
use crate::support::{SOON, Tally};

/// Why a step never succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Why {
    Error,
    Panic,
    Timeout,
    Unstorable,
}

const ALL: [Why; 4] = [Why::Error, Why::Panic, Why::Timeout, Why::Unstorable];

#[durable_fsm(name = "hopeless")]
pub enum Hopeless {
    #[state(initial, next(Hold), retry(max_attempts = 4, backoff = "1ms"), timeout = "20ms")]
    Four { why: Why },
    #[state(initial, next(Hold), timeout = "20ms")]
    Once { why: Why },
    /// Never reached: what leads here cannot be stored.
    Hold { text: String },
}

#[derive(Clone, Default)]
struct Steps(Arc<Tally>);

impl HopelessSteps for Steps {
    async fn four(&self, s: Four, cx: &mut Context<Four>) -> StepResult<Four> {
        self.0.note(cx.id());
        match s.why {
            Why::Error => Err("no".into()),
            Why::Panic => panic!("no"),
            Why::Timeout => std::future::pending().await,
            Why::Unstorable => Ok(cx.next(Hold { text: "\0".into() })),
        }
    }

    async fn once(&self, s: Once, cx: &mut Context<Once>) -> StepResult<Once> {
        self.0.note(cx.id());
        match s.why {
            Why::Error => Err("no".into()),
            Why::Panic => panic!("no"),
            Why::Timeout => std::future::pending().await,
            Why::Unstorable => Ok(cx.next(Hold { text: "\0".into() })),
        }
    }

    async fn hold(&self, _: Hold, cx: &mut Context<Hold>) -> StepResult<Hold> {
        Ok(cx.stop("reached"))
    }
}

/// R18. Crashes are counted in the tests that crash.
#[tokio::test]
async fn a_limit_of_n_attempts_is_n_starts_however_they_end() {
    let bed = Bed::create().await;
    let steps = Steps::default();
    let engine = bed.engine().register(Hopeless::machine(steps.clone())).start().await.unwrap();
    let mut started = Vec::new();
    for why in ALL {
        started.push((why, 4, engine.insert(Four { why }).await.unwrap()));
        started.push((why, 1, engine.insert(Once { why }).await.unwrap()));
    }
    for (why, starts, instance) in started {
        let result = instance.result().within(SOON).await.unwrap();
        assert!(matches!(result, InstanceResult::Failed { .. }), "{why:?}: {result:?}");
        assert_eq!(steps.0.of(instance.id()), starts, "{why:?}: {result:?}");
        let end = engine.get(instance.id()).await.unwrap().unwrap();
        assert_eq!((end.status, end.crashes), (Status::Failed, 0), "{why:?}");
    }
}
