//! The store alone: statements, races with explicit commits in the bad order, plans.

mod data;
mod faults;
mod life;
mod migrations;
mod plans;
mod races;
mod setup;
