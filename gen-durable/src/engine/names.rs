//! The names of the engines that run in this process.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use super::lease::lock;
use crate::error::Error;

static NAMES: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// A name that is taken until this is dropped.
pub(super) struct TakenName(String);

/// Takes a name for an engine.
pub(super) fn take(name: &str) -> Result<TakenName, Error> {
    if lock(&NAMES).insert(name.to_owned()) {
        Ok(TakenName(name.to_owned()))
    } else {
        Err(Error::AlreadyStarted { name: name.to_owned() })
    }
}

impl Drop for TakenName {
    fn drop(&mut self) {
        lock(&NAMES).remove(&self.0);
    }
}
