use gen_durable::prelude::*;

#[durable_fsm(inline)]
enum Checkout {
    #[state(next(Ship), inline = "yes")]
    Start { order: i64 },
    #[state(finishes, inline = false)]
    Ship { order: i64 },
}

fn main() {}
