//! The code that the macros make, without an engine.

mod basics;
