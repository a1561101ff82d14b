use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {}

fn main() {}
