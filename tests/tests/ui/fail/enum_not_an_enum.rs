use gen_durable::prelude::*;

#[durable_fsm]
struct Checkout {
    order: i64,
}

fn main() {}
