//! The tests of `docs/testing.md`, letter by letter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gen_durable::prelude::*;
use gen_durable::testing::{self, Decided, TestEngine};

const DAY: Duration = Duration::from_secs(86_400);

/// An order, from payment to parcel.
#[durable_fsm(output = u32, queue = "orders")]
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Charge the card: three times at most, after a rest of a minute and then of two.
    #[state(initial, next(Cool), retry(max_attempts = 3, backoff = "60s"))]
    Charge { order: u32 },
    /// The day in which customers change their minds.
    #[state(next(Ship))]
    Cool { order: u32 },
    /// Hand the parcel over.
    #[state(finishes)]
    Ship { order: u32 },
}

/// A bank that is away for the first few calls.
#[derive(Clone, Default)]
struct Bank {
    away_for: u32,
    calls: Arc<AtomicU32>,
}

impl Bank {
    async fn charge(&self, _order: u32) -> Result<(), std::io::Error> {
        if self.calls.fetch_add(1, Ordering::Relaxed) < self.away_for {
            return Err(std::io::Error::other("the bank is away"));
        }
        Ok(())
    }
}

struct Steps {
    bank: Bank,
}

impl OrderSteps for Steps {
    async fn charge(&self, s: Charge, cx: &mut Context<Charge>) -> StepResult<Charge> {
        self.bank.charge(s.order).await?;
        Ok(cx.next_with(Cool { order: s.order }).delay(DAY).into())
    }

    async fn cool(&self, s: Cool, cx: &mut Context<Cool>) -> StepResult<Cool> {
        Ok(cx.next(Ship { order: s.order }))
    }

    async fn ship(&self, s: Ship, cx: &mut Context<Ship>) -> StepResult<Ship> {
        Ok(cx.done(s.order))
    }
}

/// A test engine whose bank is away for the first few calls.
async fn engine(away_for: u32) -> TestEngine {
    let steps = Steps { bank: Bank { away_for, ..Bank::default() } };
    TestEngine::in_memory().register(Order::machine(steps)).start().await.unwrap()
}

#[tokio::test]
async fn an_order_ships_after_a_day() {
    let mut engine = engine(0).await;
    let order = engine.insert(Charge { order: 42 }).await.unwrap();
    engine.advance(DAY - Duration::from_secs(1)).await;
    engine.assert_waiting(&order).await;
    engine.advance(Duration::from_secs(1)).await;
    assert_eq!(engine.assert_done(&order).await, 42);
}

#[tokio::test]
async fn a_bank_that_comes_back_gets_its_retries() {
    let mut engine = engine(2).await;
    let order = engine.insert(Charge { order: 42 }).await.unwrap();
    let tally = engine.drain().await;
    assert_eq!(engine.assert_done(&order).await, 42);
    assert_eq!((tally.of("charge"), tally.retries), (3, 2));
    assert_eq!(tally.passed, DAY + Duration::from_secs(60 + 120));
}

#[tokio::test]
async fn a_bank_that_stays_away_fails_the_order() {
    let mut engine = engine(3).await;
    let order = engine.insert(Charge { order: 42 }).await.unwrap();
    engine.drain().await;
    assert!(engine.assert_failed(&order).await.contains("the bank is away"));
    assert_eq!(engine.assert_in(&order, "charge").await, Order::Charge { order: 42 });
}

#[tokio::test]
async fn charging_leads_to_a_day_of_rest() {
    let steps = Steps { bank: Bank::default() };
    let outcome = steps.charge(Charge { order: 42 }, &mut testing::context()).await;
    let decided = testing::decided(outcome).unwrap();
    assert_eq!(decided, Decided::Next { state: Order::Cool { order: 42 }, delay: DAY });
}
