//! Sending signals, one or many.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::options;
use crate::error::Error;
use crate::machine::Machine;
use crate::outcome::storable_json;
use crate::signal::SignalFor;
use crate::store::{Delivered, NewSignal, Target};

/// Shortest and longest rest before a target that somebody's transaction holds is tried again.
const FIRST_REST: Duration = Duration::from_millis(1);
const LONGEST_REST: Duration = Duration::from_millis(50);

/// What became of a signal that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// It is in its target's inbox.
    Delivered,
    /// A signal with the same key was sent to the instance before: nothing was changed.
    Repeated,
}

/// A signal to be sent; `.await` it. Made by [`Engine::signal`](crate::Engine::signal).
#[must_use = "nothing is sent until this is awaited"]
pub struct SendSignal {
    core: Arc<Core>,
    signal: Result<NewSignal, Error>,
}

impl std::fmt::Debug for SendSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendSignal").field("signal", &self.signal).finish_non_exhaustive()
    }
}

impl SendSignal {
    pub(super) fn of<M: Machine, P: SignalFor<M>>(core: Arc<Core>, target: Target, signal: &P) -> Self {
        let signal = new_signal::<M, P>(&core, target, signal);
        Self { core, signal }
    }

    pub(super) fn untyped(core: Arc<Core>, machine: &str, target: Target, name: &str, payload: &str) -> Self {
        let signal = untyped(&core, machine, target, name, payload);
        Self { core, signal }
    }

    /// The signal, checked.
    pub(super) fn into_parts(self) -> (Arc<Core>, Result<NewSignal, Error>) {
        (self.core, self.signal.and_then(checked))
    }

    /// Makes sending the signal again a no-op: an instance takes one signal with this key, however often it is sent, until
    /// the instance ends. For webhooks that are delivered more than once.
    pub fn dedup_key(mut self, key: impl Into<String>) -> Self {
        if let Ok(signal) = &mut self.signal {
            signal.dedup_key = Some(key.into());
        }
        self
    }
}

/// # Errors
///
/// [`Error::NoTarget`] when there is no live instance with this id or key, [`Error::Ambiguous`] when several live ones
/// share the key, [`Error::Unstorable`] when the signal cannot be stored, [`Error::Option`] for a key that is no text to
/// store, [`Error::Store`] when the database cannot be reached; then the signal may or may not be sent;
/// [`Error::Stopped`] after a shutdown.
///
/// # Cancel safety
///
/// Dropped before it is ready, the signal may or may not be sent: with a [`dedup_key`](SendSignal::dedup_key), send it again.
impl IntoFuture for SendSignal {
    type Output = Result<Delivery, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (core, signal) = self.into_parts();
            let sent = send(&core, vec![signal?]).await?.into_iter().next();
            sent.unwrap_or(Err(Error::Stopped))
        })
    }
}

/// Many signals to be sent; `.await` it. Made by [`Engine::signal_all`](crate::Engine::signal_all).
#[must_use = "nothing is sent until this is awaited"]
pub struct SendSignals<M> {
    core: Arc<Core>,
    signals: Vec<Result<NewSignal, Error>>,
    machine: PhantomData<fn() -> M>,
}

impl<M> std::fmt::Debug for SendSignals<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendSignals").field("signals", &self.signals.len()).finish_non_exhaustive()
    }
}

impl<M: Machine> SendSignals<M> {
    pub(super) fn of<P: SignalFor<M>>(
        core: Arc<Core>,
        signals: impl IntoIterator<Item = (impl Into<Target>, P)>,
    ) -> Self {
        let signals = signals.into_iter();
        let signals = signals.map(|(target, signal)| new_signal::<M, P>(&core, target.into(), &signal));
        Self { signals: signals.collect(), core, machine: PhantomData }
    }

    /// As [`SendSignal::dedup_key`], with a key for each signal by its place.
    pub fn dedup_keys(mut self, mut key: impl FnMut(usize) -> String) -> Self {
        for (place, signal) in self.signals.iter_mut().enumerate() {
            if let Ok(signal) = signal {
                signal.dedup_key = Some(key(place));
            }
        }
        self
    }
}

/// Says of each signal, in order, what became of it; those that cannot be sent stop no others.
///
/// # Errors
///
/// As for one signal. [`Error::Unstorable`] and [`Error::Option`] before anything is sent.
///
/// # Cancel safety
///
/// Dropped before it is ready, any of the signals may be sent.
impl<M: Machine> IntoFuture for SendSignals<M> {
    type Output = Result<Vec<Result<Delivery, Error>>, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { core, signals, .. } = self;
            let signals =
                signals.into_iter().map(|signal| checked(signal?)).collect::<Result<Vec<_>, _>>()?;
            let mut sent = Vec::with_capacity(signals.len());
            let mut rest = signals;
            while !rest.is_empty() {
                let more = rest.split_off(fitting(&rest));
                sent.extend(send(&core, std::mem::replace(&mut rest, more)).await?);
            }
            Ok(sent)
        })
    }
}

/// How many signals fit into one statement.
fn fitting(signals: &[NewSignal]) -> usize {
    const MAX_BATCH: usize = 1_000;
    const MAX_BYTES: usize = 4 * 1024 * 1024;
    let mut bytes = 0;
    let fits = signals.iter().take(MAX_BATCH).take_while(|signal| {
        bytes += signal.payload.len();
        bytes <= MAX_BYTES
    });
    fits.count().max(1).min(signals.len())
}

fn new_signal<M: Machine, P: SignalFor<M>>(
    core: &Core,
    target: Target,
    signal: &P,
) -> Result<NewSignal, Error> {
    let payload = storable_json::<P>((P::STORED.write)(signal), core.options.payload_limit)?;
    Ok(NewSignal { machine: M::NAME.into(), target, name: P::NAME.into(), payload, dedup_key: None })
}

fn untyped(
    core: &Core,
    machine: &str,
    target: Target,
    name: &str,
    payload: &str,
) -> Result<NewSignal, Error> {
    options::name("machine", machine)?;
    options::name("signal", name)?;
    let _: serde::de::IgnoredAny = serde_json::from_str(payload)
        .map_err(|error| Error::Unstorable { type_name: "signal", problem: format!("not JSON: {error}") })?;
    let payload = storable_json::<serde::de::IgnoredAny>(Ok(payload.to_owned()), core.options.payload_limit)?;
    if let Some(taken) = core.registry.signals_of(machine)
        && !taken.contains(&name)
    {
        return Err(Error::UnknownSignal {
            machine: machine.into(),
            signal: name.into(),
            known: taken.join(", "),
        });
    }
    Ok(NewSignal { machine: machine.into(), target, name: name.into(), payload, dedup_key: None })
}

fn checked(signal: NewSignal) -> Result<NewSignal, Error> {
    if let Some(key) = &signal.dedup_key {
        options::name("dedup_key", key)?;
    }
    if let Target::Key(key) = &signal.target {
        options::name("correlation_key", key)?;
    }
    Ok(signal)
}

/// Sends signals, again and again to those whose target somebody's transaction holds.
async fn send(core: &Core, signals: Vec<NewSignal>) -> Result<Vec<Result<Delivery, Error>>, Error> {
    let mut fates: Vec<Option<Result<Delivery, Error>>> = signals.iter().map(|_| None).collect();
    let mut open: Vec<usize> = (0..signals.len()).collect();
    let mut rest = FIRST_REST;
    while !open.is_empty() {
        if core.is_stopping() {
            return Err(Error::Stopped);
        }
        let batch: Vec<NewSignal> = open.iter().map(|place| signals[*place].clone()).collect();
        let delivered = core.store.signal(&batch).await.map_err(Error::store("sending a signal"))?;
        let mut locked = Vec::new();
        for (place, delivered) in open.into_iter().zip(delivered) {
            match delivered {
                Delivered::Locked => locked.push(place),
                delivered => {
                    if let Delivered::Stored { woke: Some(queue) } = &delivered {
                        core.work_committed(queue);
                    }
                    fates[place] = Some(answer(&signals[place], &delivered));
                }
            }
        }
        open = locked;
        if !open.is_empty() {
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(LONGEST_REST);
        }
    }
    Ok(fates.into_iter().flatten().collect())
}

/// What the sender is told.
pub(super) fn answer(signal: &NewSignal, delivered: &Delivered) -> Result<Delivery, Error> {
    let (machine, target) = (signal.machine.clone(), signal.target.to_string());
    match delivered {
        Delivered::Stored { .. } => Ok(Delivery::Delivered),
        Delivered::Repeated => Ok(Delivery::Repeated),
        Delivered::Ambiguous => Err(Error::Ambiguous { machine, target }),
        Delivered::NoTarget | Delivered::Locked => Err(Error::NoTarget { machine, target }),
    }
}
