//! What the library offers for tests of machines.

mod engine;
mod guide;
mod step;
