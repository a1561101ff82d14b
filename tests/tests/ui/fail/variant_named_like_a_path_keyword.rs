use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    Crate { order: i64 },
}

fn main() {}
