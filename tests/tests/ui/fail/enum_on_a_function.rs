use gen_durable::prelude::*;

#[durable_fsm(version = 1)]
fn checkout() {}

fn main() {}
