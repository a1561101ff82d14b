use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    Checkout { order: i64 },
}

fn main() {}
