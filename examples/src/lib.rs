//! Programs that show `gen-durable` at work, one in each directory next to this one:
//! `cargo run --example ingest -- <directory>`.
