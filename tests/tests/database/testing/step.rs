//! One step alone.

use std::time::Duration;

use gen_durable::ChildEnd;
use gen_durable::prelude::*;
use gen_durable::testing::{Decided, context, decided};

#[durable_fsm(output = (u32, u32), name = "alone")]
#[derive(Debug, Clone, PartialEq)]
enum Alone {
    #[state(finishes, next(Ask))]
    Ask { how: u8 },
}

struct Steps;

impl AloneSteps for Steps {
    async fn ask(&self, s: Ask, cx: &mut Context<Ask>) -> StepResult<Ask> {
        match s.how {
            0 => Ok(cx.done((cx.attempt(), cx.crashes()))),
            1 => Ok(cx.retry(Ask { how: 0 }, Duration::from_secs(5))),
            2 => Ok(cx.next(Ask { how: 0 })),
            3 => Ok(cx.stop("no more")),
            _ => Err("as told".into()),
        }
    }
}

#[tokio::test]
async fn every_decision_of_a_step_can_be_looked_at() {
    let ask =
        async |how| decided(Steps.ask(Ask { how }, &mut context().with_attempt(7).with_crashes(2)).await);
    assert_eq!(ask(0).await.unwrap(), Decided::Done((7, 2)));
    let state = Alone::Ask { how: 0 };
    assert_eq!(ask(1).await.unwrap(), Decided::Retry { state: state.clone(), after: Duration::from_secs(5) });
    assert_eq!(ask(2).await.unwrap(), Decided::Next { state, delay: Duration::ZERO });
    assert_eq!(ask(3).await.unwrap(), Decided::Stop("no more".into()));
    assert_eq!(ask(4).await.unwrap_err().to_string(), "as told");
}

#[tokio::test]
async fn a_context_has_the_id_and_queue_that_it_is_given() {
    let id = gen_durable::InstanceId::from(uuid::Uuid::now_v7());
    let cx = context::<Ask>().with_id(id);
    assert_eq!((cx.id(), cx.queue(), cx.attempt()), (id, "default", 0));
}

#[derive(Debug, PartialEq, Signal, Serialize, Deserialize)]
struct Answer(u32);

#[derive(Debug, PartialEq, Signal, Serialize, Deserialize)]
struct Refusal;

#[durable_fsm(output = u32, signals(Answer, Refusal))]
#[derive(Debug, Clone, PartialEq)]
enum Poll {
    #[state(initial, next(Count, Meet))]
    Call { voters: Vec<u8> },
    #[state(finishes, next(Count))]
    Count { wanted: usize },
    #[state(finishes)]
    Meet {},
}

struct Pollsters;

impl PollSteps for Pollsters {
    async fn call(&self, s: Call, cx: &mut Context<Call>) -> StepResult<Call> {
        if s.voters.is_empty() {
            let wait = cx.wait_for::<Answer>(Count { wanted: 2 }).or::<Refusal>().or::<Answer>();
            return Ok(wait.timeout(Duration::from_secs(60)).into());
        }
        Ok(cx.fan_out(s.voters.into_iter().map(|how| Ask { how }), Meet {}))
    }

    async fn count(&self, s: Count, cx: &mut Context<Count>) -> StepResult<Count> {
        let answers = cx.awaited::<Answer>()?;
        if !cx.awaited::<Refusal>()?.is_empty() {
            return Ok(cx.stop("refused"));
        }
        if answers.len() < s.wanted && !cx.timed_out() {
            return Ok(cx.wait_for::<Answer>(s).into());
        }
        Ok(cx.done(answers.into_iter().map(|answer| answer.0).sum()))
    }

    async fn meet(&self, _: Meet, cx: &mut Context<Meet>) -> StepResult<Meet> {
        let mut sum = 0;
        for child in cx.children::<Alone>().all().await? {
            match child.end {
                ChildEnd::Done((attempt, crashes)) => sum += attempt + crashes,
                ChildEnd::Failed(reason) => return Ok(cx.stop(reason)),
                _ => sum += 1_000,
            }
        }
        Ok(cx.done(sum))
    }
}

#[tokio::test]
async fn waits_and_fan_outs_can_be_looked_at() {
    let call = async |voters: &[u8]| {
        decided(Pollsters.call(Call { voters: voters.to_vec() }, &mut context()).await).unwrap()
    };
    let waits = Decided::Wait {
        state: Poll::Count { wanted: 2 },
        signals: vec!["answer", "refusal"],
        timeout: Some(Duration::from_secs(60)),
    };
    assert_eq!(call(&[]).await, waits);
    let children =
        vec![("alone", "ask", r#"{"how":1}"#.to_owned()), ("alone", "ask", r#"{"how":7}"#.to_owned())];
    assert_eq!(call(&[1, 7]).await, Decided::FanOut { state: Poll::Meet {}, children });
}

#[tokio::test]
async fn a_step_alone_finds_the_signals_that_the_test_gives_it() {
    let count =
        async |cx: &mut Context<Count>| decided(Pollsters.count(Count { wanted: 2 }, cx).await).unwrap();
    let cx = || context::<Count>();
    let again = Decided::Wait { state: Poll::Count { wanted: 2 }, signals: vec!["answer"], timeout: None };
    assert_eq!(count(&mut cx()).await, again);
    assert_eq!(count(&mut cx().with_awaited(&Answer(3))).await, again);
    let mut both = cx().with_awaited(&Answer(3)).with_awaited(&Answer(4));
    assert_eq!(count(&mut both).await, Decided::Done(7));
    assert_eq!(count(&mut cx().with_timeout()).await, Decided::Done(0));
    assert_eq!(count(&mut cx().with_awaited(&Answer(3)).with_timeout()).await, Decided::Done(3));
    assert_eq!(count(&mut cx().with_timeout().with_awaited(&Answer(3))).await, Decided::Done(3));
    assert_eq!(count(&mut cx().with_awaited(&Refusal)).await, Decided::Stop("refused".into()));
    let cx = cx().with_awaited(&Answer(3)).with_awaited(&Refusal);
    let inbox: Vec<_> = cx.inbox().map(|received| (received.name(), received.payload())).collect();
    assert_eq!(inbox, [("answer", "3"), ("refusal", "null")]);
    assert!(cx.inbox().all(|received| received.is_awaited()));
    assert_eq!(cx.inbox().next().unwrap().get::<Answer>().unwrap(), Some(Answer(3)));
    assert_eq!(cx.inbox().next().unwrap().get::<Refusal>().unwrap(), None);
}

#[tokio::test]
async fn a_step_alone_finds_the_children_that_the_test_gives_it() {
    let meet = async |cx: &mut Context<Meet>| decided(Pollsters.meet(Meet {}, cx).await).unwrap();
    assert_eq!(meet(&mut context()).await, Decided::Done(0));
    let two = context().with_child::<Alone>(ChildEnd::Done((1, 2))).with_child::<Alone>(ChildEnd::Cancelled);
    // Of another machine.
    let mut cx = two.with_child::<Poll>(ChildEnd::Failed("not asked for".into()));
    assert_eq!(meet(&mut cx).await, Decided::Done(1_003));
    let mut cx = context().with_child::<Alone>(ChildEnd::Failed("no".into()));
    assert_eq!(meet(&mut cx).await, Decided::Stop("no".into()));
    let ends = (0..2_500).map(|n| ChildEnd::Done((n, 0)));
    let mut many = ends.fold(context(), |cx, end| cx.with_child::<Alone>(end));
    assert_eq!(meet(&mut many).await, Decided::Done(2_499 * 2_500 / 2));
}

#[tokio::test]
async fn a_step_alone_has_no_database_to_begin_a_transaction_on() {
    let cx = context::<Ask>();
    let error = cx.begin::<sqlx::Postgres>().await.unwrap_err();
    assert!(error.is_fatal());
    assert!(error.to_string().contains("a context without an engine has no database"), "{error}");
}
