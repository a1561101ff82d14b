//! Programs that show `gen-durable` at work, one in each directory next to this one:
//! `cargo run --example ingest -- <directory>`, `cargo run --example checkout`. README.md says more.
