use gen_durable::prelude::*;

struct SendMail;

fn entry() {
    let _ = <SendMail as Job>::job();
}

fn main() {}
