//! Rows that the running code cannot read.

use gen_durable::prelude::*;
use gen_durable::{Event, InstanceResult, Status};

use super::Bed;
use crate::support::{NEVER, SOON, told};

#[durable_fsm(name = "form", output = u32, queue = "forms", retry(max_attempts = 5))]
pub enum Form {
    #[state(initial, finishes, rename = "fill_in", alias = "fill", alias = "complete")]
    Fill { page: u32 },
}

struct Clerks;

impl FormSteps for Clerks {
    async fn fill(&self, s: Fill, cx: &mut Context<Fill>) -> StepResult<Fill> {
        Ok(cx.done(s.page))
    }
}

/// R41
#[tokio::test]
async fn a_row_that_does_not_decode_is_set_aside_and_fixed_code_can_finish_it() {
    let bed = Bed::create().await;
    let engine = bed.engine().queue("forms", 1).register(Form::machine(Clerks)).start().await.unwrap();
    let mut events = engine.events();
    for (step, state, said) in [
        ("fill_in", r#"{"sheet": 1}"#, "missing field `page`"),
        ("fill_in", r#"{"page": "one"}"#, "invalid type"),
        ("fill_in", "null", "invalid type"),
        ("shred", r#"{"page": 1}"#, "has no step `shred`"),
    ] {
        let form = engine.insert(Fill { page: 7 }).delay(NEVER).await.unwrap();
        bed.leave(form.id(), step, state).await;
        let InstanceResult::Failed { reason, .. } = form.result().within(SOON).await.unwrap() else {
            panic!("{step} {state} does not decode");
        };
        assert!(reason.contains(said), "{step} {state}: {reason}");
        let (seen, problem) = told(&mut events, |event| match event {
            Event::StateUndecodable { id, machine: "form", state, problem } if id == form.id() => {
                Some((state, problem))
            }
            _ => None,
        })
        .await;
        assert_eq!((seen.as_str(), problem), (step, reason));
        let end = engine.get(form.id()).await.unwrap().unwrap();
        assert_eq!((end.status, end.attempt, end.failures, end.crashes), (Status::Failed, 0, 0, 0));
        assert!(end.decode::<Form>().is_err());

        // The only slot serves others, and this row once it reads well.
        let next = engine.insert(Fill { page: 8 }).await.unwrap();
        assert_eq!(next.result().within(SOON).await.unwrap().done().unwrap(), 8);
        bed.leave(form.id(), "fill_in", r#"{"page": 9}"#).await;
        assert_eq!(form.result().within(SOON).await.unwrap().done().unwrap(), 9, "{step} {state}");
    }
}

/// R41
#[tokio::test]
async fn a_renamed_step_finds_its_rows_by_their_old_names() {
    let bed = Bed::create().await;
    let engine = bed.engine().queue("forms", 1).register(Form::machine(Clerks)).start().await.unwrap();
    for step in ["fill", "complete", "fill_in"] {
        let form = engine.insert(Fill { page: 1 }).delay(NEVER).await.unwrap();
        bed.leave(form.id(), step, r#"{"page": 3, "colour": "a field that was removed"}"#).await;
        assert_eq!(form.result().within(SOON).await.unwrap().done().unwrap(), 3, "{step}");
    }
}
