//! The store alone: statements, races with explicit commits in the bad order, plans.

mod life;
mod setup;
