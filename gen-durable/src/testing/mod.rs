//! For tests of machines and jobs: no server, no waiting, and time that moves when it is told.
//!
//! [`TestEngine`] runs instances in the test's own task, one step after the other, through the code that claims,
//! runs and commits in production. On the in-memory store its time is virtual. [`context()`] runs one step alone.
//!
//! ```
//! # #[cfg(feature = "sqlite")] mod test {
//! use gen_durable::prelude::*;
//! use gen_durable::testing::TestEngine;
//! use std::time::Duration;
//!
//! #[durable_fsm(output = u32)]
//! enum Reminder {
//!     #[state(initial, next(Remind))]
//!     Wait { order: u32 },
//!     #[state(finishes)]
//!     Remind { order: u32 },
//! }
//!
//! struct Steps;
//!
//! impl ReminderSteps for Steps {
//!     async fn wait(&self, s: Wait, cx: &mut Context<Wait>) -> StepResult<Wait> {
//!         Ok(cx.next_with(Remind { order: s.order }).delay(Duration::from_secs(86_400)).into())
//!     }
//!     async fn remind(&self, s: Remind, cx: &mut Context<Remind>) -> StepResult<Remind> {
//!         Ok(cx.done(s.order))
//!     }
//! }
//!
//! # #[expect(dead_code)]
//! #[tokio::test]
//! async fn a_reminder_comes_after_a_day() {
//!     let mut engine = TestEngine::in_memory().register(Reminder::machine(Steps)).start().await.unwrap();
//!     let reminder = engine.insert(Wait { order: 42 }).await.unwrap();
//!     engine.advance(Duration::from_secs(86_399)).await;
//!     engine.assert_waiting(&reminder).await;
//!     engine.advance(Duration::from_secs(1)).await;
//!     assert_eq!(engine.assert_done(&reminder).await, 42);
//! }
//! # }
//! ```

mod assert;
mod builder;
mod engine;
mod step;
mod tally;

pub use builder::TestEngineBuilder;
pub use engine::TestEngine;
pub use step::{Decided, TestContext, context, decided};
pub use tally::Tally;
