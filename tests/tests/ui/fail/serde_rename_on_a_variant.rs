use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    #[serde(rename = "begin", alias = "go")]
    Start { order: i64 },
}

fn main() {}
