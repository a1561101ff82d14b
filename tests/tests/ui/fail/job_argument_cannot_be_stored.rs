use gen_durable::prelude::*;

struct SendMail;

#[durable_job]
async fn send_mail(_: SendMail) -> JobResult<()> {
    Ok(())
}

fn main() {}
