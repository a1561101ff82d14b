//! The store on PostgreSQL alone: races with explicit commits in the bad order, plans, faults, migrations.

mod counts;
mod counts_beyond;
mod data;
mod faults;
mod gate;
mod meetings;
mod migrations;
mod plans;
mod plans_beyond;
mod pokes;
mod races;
mod setup;
