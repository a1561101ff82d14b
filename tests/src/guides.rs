//! Runs the code of the README and the guides.

#[doc = include_str!("../../README.md")]
mod readme {}

#[doc = include_str!("../../docs/machines.md")]
mod machines {}

#[doc = include_str!("../../docs/jobs.md")]
mod jobs {}

#[doc = include_str!("../../docs/signals.md")]
mod signals {}

#[doc = include_str!("../../docs/children.md")]
mod children {}

#[doc = include_str!("../../docs/identity.md")]
mod identity {}

#[doc = include_str!("../../docs/transactions.md")]
mod transactions {}

#[doc = include_str!("../../docs/errors-and-retries.md")]
mod errors_and_retries {}

#[doc = include_str!("../../docs/operations.md")]
mod operations {}

#[doc = include_str!("../../docs/testing.md")]
mod testing {}

#[doc = include_str!("../../docs/choosing-a-store.md")]
mod choosing_a_store {}
