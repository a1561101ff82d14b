use gen_durable::prelude::*;

#[durable_fsm]
enum Checkout<const N: usize>
where
    (): Sized,
{
    Start { order: [u8; N] },
}

fn main() {}
