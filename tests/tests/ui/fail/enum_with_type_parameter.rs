use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout<T> {
    Start { order: T },
}

fn main() {}
