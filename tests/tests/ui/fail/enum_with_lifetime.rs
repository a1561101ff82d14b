use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout<'a> {
    Start { order: &'a str },
}

fn main() {}
