//! The code that the macros make, without an engine.

mod basics;
mod hostile_names;
mod no_implicit_prelude;
mod places;
mod serde_attributes;
mod signals;
