//! Runs the code of the guides.

#[doc = include_str!("../../docs/machines.md")]
mod machines {}

#[doc = include_str!("../../docs/jobs.md")]
mod jobs {}
