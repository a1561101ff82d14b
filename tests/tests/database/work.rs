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
    stopped: mpsc::UnboundedSender<InstanceId>,
    gate: Arc<Semaphore>,
}

/// Sees steps start and lets them end.
pub(crate) struct Foreman {
    pub(crate) gate: Arc<Semaphore>,
    started: mpsc::UnboundedReceiver<InstanceId>,
    stopped: mpsc::UnboundedReceiver<InstanceId>,
}

/// Tells the foreman of a step that ends before it was allowed to.
struct Waiting<'a> {
    workers: &'a Workers,
    id: InstanceId,
    is_allowed: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_allowed {
            // A test may not care.
            let _ = self.workers.stopped.send(self.id);
        }
    }
}

/// Workers and their foreman.
pub(crate) fn site() -> (Workers, Foreman) {
    let gate = Arc::new(Semaphore::new(0));
    let (starts, started) = mpsc::unbounded_channel();
    let (stops, stopped) = mpsc::unbounded_channel();
    (Workers { started: starts, stopped: stops, gate: Arc::clone(&gate) }, Foreman { gate, started, stopped })
}

impl Foreman {
    /// The next instance whose digging starts.
    pub(crate) async fn started(&mut self) -> InstanceId {
        soon(self.started.recv()).await.expect("there are workers")
    }

    /// The next instance whose step is told to stop.
    pub(crate) async fn stopped(&mut self) -> InstanceId {
        soon(self.stopped.recv()).await.expect("there are workers")
    }

    /// Lets this many steps end.
    pub(crate) fn allow(&self, count: usize) {
        self.gate.add_permits(count);
    }
}

impl Workers {
    /// Says that a step has started.
    pub(crate) fn start(&self, id: InstanceId) {
        // A test may not care.
        let _ = self.started.send(id);
    }

    /// Says that a step has started and waits for its leave to end.
    pub(crate) async fn wait(&self, id: InstanceId) -> Result<(), StepError> {
        self.start(id);
        let mut waiting = Waiting { workers: self, id, is_allowed: false };
        self.gate.acquire().await?.forget();
        waiting.is_allowed = true;
        Ok(())
    }
}

impl WorkSteps for Workers {
    async fn dig(&self, s: Dig, cx: &mut Context<Dig>) -> StepResult<Dig> {
        self.wait(cx.id()).await?;
        Ok(cx.done(s.n))
    }

    async fn rest(&self, s: Rest, cx: &mut Context<Rest>) -> StepResult<Rest> {
        Ok(cx.done(s.n))
    }

    async fn shift(&self, s: Shift, cx: &mut Context<Shift>) -> StepResult<Shift> {
        self.wait(cx.id()).await?;
        Ok(cx.next_with(Rest { n: s.n }).inline(true).into())
    }
}
