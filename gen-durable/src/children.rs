//! Children: instances that an instance inserts and waits for.

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::context::Call;
use crate::error::{Error, StepError};
use crate::id::{InstanceId, MachineId};
use crate::machine::{Initial, Machine, State};
use crate::outcome::encode;
use crate::store::{ChildRecord, NewInstance, Parent, Start, Status};
use crate::transition::Child as Erased;

/// An instance to be inserted by a fan-out, in its initial state, with options.
#[derive(Debug)]
pub struct NewChild {
    child: Result<Erased, Error>,
}

impl NewChild {
    /// A child that begins in `state`.
    #[expect(clippy::needless_pass_by_value, reason = "a state is handed over, as with `insert`")]
    pub fn of<C: Initial>(state: C) -> Self {
        let child = encode(&state, usize::MAX).map(|state| Erased {
            machine: <C::Machine as Machine>::NAME,
            version: <C::Machine as Machine>::VERSION,
            instance: NewInstance {
                id: InstanceId::generate(),
                machine: MachineId(0),
                step: <C as State>::STEP,
                state,
                queue: <C::Machine as Machine>::QUEUE.into(),
                priority: 0,
                start: Start::After(Duration::ZERO),
                trace_context: None,
                key: None,
                parent: None,
            },
        });
        Self { child }
    }

    /// Runs the child on this queue instead of its machine's.
    #[must_use]
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.change(|instance| instance.queue = queue.as_ref().into())
    }

    /// Lower runs first, before any comparison of times; 0 by default.
    #[must_use]
    pub fn priority(self, priority: i16) -> Self {
        self.change(|instance| instance.priority = priority)
    }

    /// Starts the child no earlier than this long after the fan-out, by the database's clock; at most 100 years.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        self.change(|instance| instance.start = Start::After(delay))
    }

    /// The id that the child will have.
    ///
    /// # Errors
    ///
    /// [`Error::Unstorable`] when its state cannot be stored: the fan-out will fail with it.
    pub fn id(&self) -> Result<InstanceId, &Error> {
        self.child.as_ref().map(|child| child.instance.id)
    }

    fn change(mut self, change: impl FnOnce(&mut NewInstance)) -> Self {
        if let Ok(child) = &mut self.child {
            change(&mut child.instance);
        }
        self
    }

    /// The child of a fan-out, if it can be stored.
    pub(crate) fn checked(self, parent: Parent, payload_limit: usize) -> Result<Erased, Error> {
        let mut child = self.child?;
        child.instance.parent = Some(parent);
        let size = child.instance.state.len();
        if size > payload_limit {
            let problem = format!(
                "the state of a child takes {size} bytes of JSON, over the `payload_limit` of {payload_limit}; keep \
                 large data elsewhere and store a reference"
            );
            return Err(Error::Unstorable { type_name: child.machine, problem });
        }
        crate::engine::check_name("queue", &child.instance.queue)?;
        Ok(child)
    }
}

/// What a fan-out can insert: initial states of any machine, and [`NewChild`]ren, which have options.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a child: an instance may not start in it",
    label = "not an initial state",
    note = "children are initial states (`module::Variant {{ .. }}` with `#[state(initial)]`) or `NewChild::of(state)`"
)]
pub trait IntoChild {
    /// The child.
    fn into_child(self) -> NewChild;
}

impl IntoChild for NewChild {
    fn into_child(self) -> NewChild {
        self
    }
}

impl<C: Initial> IntoChild for C {
    fn into_child(self) -> NewChild {
        NewChild::of(self)
    }
}

/// A child that has ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EndedChild<T> {
    /// The child.
    pub id: InstanceId,
    /// How it ended.
    pub end: ChildEnd<T>,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ChildEnd<T> {
    /// It is done.
    Done(T),
    /// It failed, for this reason.
    Failed(String),
    /// It was cancelled.
    Cancelled,
}

impl<T> ChildEnd<T> {
    /// The output, if the child is done.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(output) => Some(output),
            _ => None,
        }
    }
}

/// How many children one page holds.
const PAGE: u32 = 1_000;
/// For how long an unavailable database is asked again, and how often.
const PATIENCE: Duration = Duration::from_secs(30);
const REST: Duration = Duration::from_millis(200);

/// The children of one machine, read page by page. Made by [`Context::children`](crate::Context::children).
pub struct Children<'a, M> {
    call: &'a Call,
    after: Option<InstanceId>,
    is_at_end: bool,
    machine: PhantomData<fn() -> M>,
}

impl<M> fmt::Debug for Children<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children").field("after", &self.after).finish_non_exhaustive()
    }
}

impl<'a, M: Machine> Children<'a, M> {
    pub(crate) fn of(call: &'a Call) -> Self {
        Self { call, after: None, is_at_end: false, machine: PhantomData }
    }

    /// The next page: up to 1,000 children in the order in which the fan-out named them, whatever their ends; empty after
    /// the last one.
    ///
    /// An unavailable database is asked again for half a minute.
    ///
    /// # Errors
    ///
    /// When the database cannot be read, and a fatal one when an output is not an `M::Output`.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is ready, the same page is read again.
    pub async fn next_page(&mut self) -> Result<Vec<EndedChild<M::Output>>, StepError> {
        if self.is_at_end {
            return Ok(Vec::new());
        }
        let records = self.read().await?;
        let page = records.iter().map(ended::<M>).collect::<Result<Vec<_>, StepError>>()?;
        self.is_at_end = records.len() < PAGE as usize;
        self.after = records.last().map(|record| record.id).or(self.after);
        // A child that failed may run again, after this instance has gone on.
        Ok(page.into_iter().flatten().collect())
    }

    /// All of them, in memory.
    ///
    /// # Errors
    ///
    /// As [`next_page`](Self::next_page).
    pub async fn all(mut self) -> Result<Vec<EndedChild<M::Output>>, StepError> {
        let mut all = Vec::new();
        while !self.is_at_end {
            all.extend(self.next_page().await?);
        }
        Ok(all)
    }

    async fn read(&self) -> Result<Vec<ChildRecord>, StepError> {
        let scope = &self.call.scope;
        let row = &self.call.row;
        let Some(store) = &scope.store else {
            let of_machine = scope.given_children.iter().filter(|(machine, _)| machine == M::NAME);
            let later = of_machine.filter(|(_, child)| self.after.is_none_or(|after| child.id > after));
            return Ok(later.take(PAGE as usize).map(|(_, child)| child.clone()).collect());
        };
        let Some(round) = row.round else { return Ok(Vec::new()) };
        let parent = Parent { id: row.id, round };
        let began = Instant::now();
        loop {
            match store.children(parent, M::NAME, self.after, PAGE).await {
                Ok(records) => return Ok(records),
                Err(error) if error.is_rejection() || began.elapsed() > PATIENCE => {
                    return Err(Error::store("reading children")(error).into());
                }
                Err(_) => tokio::time::sleep(REST).await,
            }
        }
    }
}

/// How a child ended; `None` if it lives, which only one can that was run again.
fn ended<M: Machine>(record: &ChildRecord) -> Result<Option<EndedChild<M::Output>>, StepError> {
    let end = match record.status {
        Status::Done => {
            let output = serde_json::from_str(record.output.as_deref().unwrap_or("null"));
            ChildEnd::Done(output.map_err(|error| {
                let ChildRecord { id, version, .. } = record;
                StepError::fatal(format!(
                    "the output of child {id}, version {version}, does not decode: {error}"
                ))
            })?)
        }
        Status::Failed => ChildEnd::Failed(record.error.clone().unwrap_or_default()),
        Status::Cancelled => ChildEnd::Cancelled,
        _ => return Ok(None),
    };
    Ok(Some(EndedChild { id: record.id, end }))
}
