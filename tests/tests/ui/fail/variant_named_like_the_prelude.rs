use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout {
    #[state(next(Context))]
    Option { order: i64 },
    Context,
}

fn main() {}
