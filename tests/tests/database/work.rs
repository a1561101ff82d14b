//! Work that takes as long as a test says.

use std::sync::Arc;

use gen_durable::InstanceId;
use gen_durable::prelude::*;
use tokio::sync::{Semaphore, mpsc};

use crate::support::soon;

#[durable_fsm(name = "work", queue = "work", output = u32)]
#[derive(Debug, PartialEq)]
pub enum Work {
    /// Ends when the foreman allows it.
    #[state(initial, next(Rest), finishes)]
    Dig { n: u32 },
    /// Ends at once.
    #[state(initial, finishes)]
    Rest { n: u32 },
    /// Digs, and then rests on the same claim.
    #[state(initial, next(Rest))]
    Shift { n: u32 },
}

/// Runs the steps.
#[derive(Clone)]
pub(crate) struct Workers {
    started: mpsc::UnboundedSender<InstanceId>,
    gate: Arc<Semaphore>,
}

/// Sees steps start and lets them end.
pub(crate) struct Foreman {
    pub(crate) gate: Arc<Semaphore>,
    started: mpsc::UnboundedReceiver<InstanceId>,
}

/// Workers and their foreman.
pub(crate) fn site() -> (Workers, Foreman) {
    let gate = Arc::new(Semaphore::new(0));
    let (sender, started) = mpsc::unbounded_channel();
    (Workers { started: sender, gate: Arc::clone(&gate) }, Foreman { gate, started })
}

impl Foreman {
    /// The next instance whose digging starts.
    pub(crate) async fn started(&mut self) -> InstanceId {
        soon(self.started.recv()).await.expect("there are workers")
    }

    /// Lets this many steps end.
    pub(crate) fn allow(&self, count: usize) {
        self.gate.add_permits(count);
    }
}

impl Workers {
    async fn dig(&self, id: InstanceId) -> Result<(), StepError> {
        // A test may not care.
        let _ = self.started.send(id);
        self.gate.acquire().await?.forget();
        Ok(())
    }
}

impl WorkSteps for Workers {
    async fn dig(&self, s: Dig, cx: &mut Context<Dig>) -> StepResult<Dig> {
        Workers::dig(self, cx.id()).await?;
        Ok(cx.done(s.n))
    }

    async fn rest(&self, s: Rest, cx: &mut Context<Rest>) -> StepResult<Rest> {
        Ok(cx.done(s.n))
    }

    async fn shift(&self, s: Shift, cx: &mut Context<Shift>) -> StepResult<Shift> {
        Workers::dig(self, cx.id()).await?;
        Ok(cx.next_with(Rest { n: s.n }).inline(true).into())
    }
}
