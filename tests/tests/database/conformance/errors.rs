//! Steps that fail: their error methods, retry policies, and what is stored of an error.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::{Finishes, InstanceResult, Machine, State};
use serde::{Deserialize, Serialize};

use super::Bed;
use crate::support::{SOON, Tally};

/// An error with causes.
#[derive(Debug)]
struct Layer(String, Option<Box<Layer>>);

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Layer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|cause| cause as _)
    }
}

/// How a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Way {
    Error,
    Fatal,
    Panic,
    Timeout,
    Unstorable,
    Parse,
    Long,
}

/// Fails in the given way.
async fn fail<S>(way: Way, cx: &Context<S>) -> StepResult<S>
where
    S: Finishes + State<Machine: Machine<Output = String>>,
{
    match way {
        Way::Error => {
            let cause = Layer("the disk is full".into(), Some(Box::new(Layer("no space".into(), None))));
            Err(Layer("the parcel is lost".into(), Some(Box::new(cause))))?
        }
        Way::Fatal => Err(StepError::fatal(Layer("no such street".into(), None))),
        Way::Panic => panic!("the wheel broke"),
        Way::Timeout => std::future::pending().await,
        Way::Unstorable => Ok(cx.done("\0".into())),
        Way::Parse => Ok(cx.done("12x".parse::<i32>()?.to_string())),
        Way::Long => Err(Layer("é".repeat(10_000), None).into()),
    }
}

#[durable_fsm(name = "errand", output = String)]
pub enum Errand {
    #[state(initial, next(Apologise), finishes, timeout = "50ms")]
    Run { way: Way },
    #[state(finishes)]
    Apologise { heard: String },
}

/// Has an error method that decides.
struct Polite;

impl ErrandSteps for Polite {
    async fn run(&self, s: Run, cx: &mut Context<Run>) -> StepResult<Run> {
        fail(s.way, cx).await
    }

    async fn on_run_error(&self, s: Run, error: StepError, cx: &mut Context<Run>) -> StepResult<Run> {
        let kind = match &error {
            StepError::Failed { fatal: true, .. } => "fatal",
            StepError::Failed { .. } if error.downcast_ref::<Layer>().is_some() => "layer",
            StepError::Failed { .. } => "failed",
            StepError::Panicked { .. } => "panicked",
            StepError::TimedOut { .. } => "timed out",
            StepError::Unstorable { .. } => "unstorable",
            _ => "unknown",
        };
        if s.way == Way::Long {
            return Ok(cx.stop("too long a story"));
        }
        Ok(cx.next(Apologise { heard: format!("{kind}: {error}") }))
    }

    async fn apologise(&self, s: Apologise, cx: &mut Context<Apologise>) -> StepResult<Apologise> {
        Ok(cx.done(s.heard))
    }
}

#[tokio::test]
async fn the_error_method_sees_each_kind_of_failure_and_its_outcome_is_obeyed() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Errand::machine(Polite)).start().await.unwrap();
    for (way, heard) in [
        (Way::Error, "layer: the parcel is lost: the disk is full: no space"),
        (Way::Fatal, "fatal: no such street"),
        (Way::Panic, "panicked: the step panicked: the wheel broke"),
        (Way::Timeout, "timed out: the step did not end within its timeout of 50ms"),
        (Way::Unstorable, "unstorable: the outcome cannot be stored"),
        (Way::Parse, "failed: invalid digit found in string"),
    ] {
        let errand = engine.insert(Run { way }).await.unwrap();
        let output = errand.result().within(SOON).await.unwrap().done().unwrap();
        assert!(output.starts_with(heard), "{way:?}: {output}");
    }
    let errand = engine.insert(Run { way: Way::Long }).await.unwrap();
    let InstanceResult::Failed { reason, .. } = errand.result().within(SOON).await.unwrap() else {
        panic!("its error method stops it");
    };
    assert_eq!(reason, "too long a story");
}

/// How an error method itself fails.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Clumsiness {
    Error,
    Panic,
    Timeout,
    Unstorable,
}

#[durable_fsm(name = "mishap", output = String, retry(max_attempts = 3, backoff = "1ms"))]
pub enum Mishap {
    #[state(finishes, timeout = "50ms")]
    Trip { way: Way, then: Clumsiness },
}

#[derive(Clone, Default)]
struct Clumsy(Arc<Tally>);

impl MishapSteps for Clumsy {
    async fn trip(&self, s: Trip, cx: &mut Context<Trip>) -> StepResult<Trip> {
        self.0.note(cx.id());
        fail(s.way, cx).await
    }

    async fn on_trip_error(&self, s: Trip, _: StepError, cx: &mut Context<Trip>) -> StepResult<Trip> {
        match s.then {
            Clumsiness::Error => Err("the excuse is bad, too".into()),
            Clumsiness::Panic => panic!("lost for words"),
            Clumsiness::Timeout => std::future::pending().await,
            Clumsiness::Unstorable => Ok(cx.done("\0".into())),
        }
    }
}

#[tokio::test]
async fn an_error_method_that_fails_itself_gets_the_retry_policy_for_the_first_error() {
    let bed = Bed::create().await;
    let steps = Clumsy::default();
    let engine = bed.engine().register(Mishap::machine(steps.clone())).start().await.unwrap();
    let all = [Clumsiness::Error, Clumsiness::Panic, Clumsiness::Timeout, Clumsiness::Unstorable];
    for (way, starts, cause) in [(Way::Error, 3, "the parcel is lost"), (Way::Fatal, 1, "no such street")] {
        for then in all {
            let mishap = engine.insert(Trip { way, then }).await.unwrap();
            let InstanceResult::Failed { reason, .. } = mishap.result().within(SOON).await.unwrap() else {
                panic!("{way:?}, {then:?} never succeeds");
            };
            assert_eq!(steps.0.of(mishap.id()), starts, "{way:?}, {then:?}: {reason}");
            assert!(reason.contains(cause), "{way:?}, {then:?}: {reason}");
        }
    }
}

static RESTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn noted(failures: u32) -> Duration {
    RESTS.lock().unwrap().push(failures);
    Duration::from_millis(1)
}

fn broken(_: u32) -> Duration {
    panic!("divided by zero")
}

#[durable_fsm(name = "trial", output = String, retry(max_attempts = 4, backoff = "1ms", max_backoff = "2ms"))]
pub enum Trial {
    #[state(initial, finishes)]
    Machines { way: Way },
    #[state(initial, finishes, retry(max_attempts = 2, backoff = "1ms"))]
    States { way: Way },
    #[state(initial, finishes, retry(max_attempts = 3, backoff = noted))]
    Function { way: Way },
    #[state(initial, finishes, retry(max_attempts = 3, backoff = broken))]
    Broken { way: Way },
}

#[derive(Clone, Default)]
struct Tries(Arc<Tally>);

impl TrialSteps for Tries {
    async fn machines(&self, s: Machines, cx: &mut Context<Machines>) -> StepResult<Machines> {
        self.0.note(cx.id());
        fail(s.way, cx).await
    }

    async fn states(&self, s: States, cx: &mut Context<States>) -> StepResult<States> {
        self.0.note(cx.id());
        fail(s.way, cx).await
    }

    async fn function(&self, s: Function, cx: &mut Context<Function>) -> StepResult<Function> {
        self.0.note(cx.id());
        fail(s.way, cx).await
    }

    async fn broken(&self, s: Broken, cx: &mut Context<Broken>) -> StepResult<Broken> {
        self.0.note(cx.id());
        fail(s.way, cx).await
    }
}

#[tokio::test]
async fn a_states_policy_comes_before_its_machines_and_fatal_errors_skip_both() {
    let bed = Bed::create().await;
    let steps = Tries::default();
    let engine = bed.engine().register(Trial::machine(steps.clone())).start().await.unwrap();
    let way = Way::Error;
    let machines = engine.insert(Machines { way }).await.unwrap();
    let states = engine.insert(States { way }).await.unwrap();
    let function = engine.insert(Function { way }).await.unwrap();
    let fatal = engine.insert(Machines { way: Way::Fatal }).await.unwrap();
    for (trial, starts) in [(machines, 4), (states, 2), (function, 3), (fatal, 1)] {
        let result = trial.result().within(SOON).await.unwrap();
        assert!(matches!(result, InstanceResult::Failed { .. }), "{result:?}");
        assert_eq!(steps.0.of(trial.id()), starts, "{result:?}");
    }
    assert_eq!(*RESTS.lock().unwrap(), [0, 1], "the function is asked with the failures so far");
}

#[tokio::test]
async fn a_backoff_function_that_panics_stops_the_instance_and_says_so() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Trial::machine(Tries::default())).start().await.unwrap();
    let trial = engine.insert(Broken { way: Way::Error }).await.unwrap();
    let InstanceResult::Failed { reason, .. } = trial.result().within(SOON).await.unwrap() else {
        panic!("there is no rest to retry after");
    };
    assert!(reason.contains("backoff") && reason.contains("divided by zero"), "{reason}");
    assert!(reason.contains("the parcel is lost"), "{reason}");
}

#[tokio::test]
async fn an_error_is_stored_with_its_causes_and_cut_at_eight_kibibytes() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Trial::machine(Tries::default())).start().await.unwrap();
    let trial = engine.insert(States { way: Way::Error }).await.unwrap();
    let InstanceResult::Failed { reason, .. } = trial.result().within(SOON).await.unwrap() else {
        panic!("it fails");
    };
    assert_eq!(reason, "the parcel is lost: the disk is full: no space");

    let trial = engine.insert(States { way: Way::Long }).await.unwrap();
    let InstanceResult::Failed { reason, .. } = trial.result().within(SOON).await.unwrap() else {
        panic!("it fails");
    };
    assert!(reason.len() <= 8 * 1024 && reason.len() > 8000 && reason.ends_with("[cut]"), "{}", reason.len());
}

#[durable_fsm(name = "patience", output = String)]
pub enum Patience {
    #[state(finishes, retry(max_attempts = 2, backoff = "1h", max_backoff = "1h"))]
    Wait { way: Way },
}

impl PatienceSteps for Tries {
    async fn wait(&self, s: Wait, cx: &mut Context<Wait>) -> StepResult<Wait> {
        self.0.note(cx.id());
        fail(s.way, cx).await
    }
}

#[tokio::test]
async fn the_last_error_is_seen_while_a_failed_instance_rests() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Patience::machine(Tries::default())).start().await.unwrap();
    let mut events = engine.events();
    let resting = engine.insert(Wait { way: Way::Error }).await.unwrap();
    crate::support::told(&mut events, |event| {
        matches!(event, gen_durable::Event::StepFinished { outcome: "retry", .. }).then_some(())
    })
    .await;
    let result = resting.result().within(Duration::ZERO).await.unwrap();
    let text = result.clone().done().unwrap_err().to_string();
    assert!(text.contains("the parcel is lost") && text.contains("scheduled"), "{text}");
    let InstanceResult::Busy(snapshot) = result else { panic!("it rests for an hour") };
    assert_eq!((snapshot.attempt, snapshot.failures, snapshot.crashes), (1, 1, 0));
    assert_eq!(snapshot.error.as_deref(), Some("the parcel is lost: the disk is full: no space"));
}
