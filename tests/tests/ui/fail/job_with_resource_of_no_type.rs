use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

#[durable_job(resources())]
async fn send_mail(_: SendMail) -> JobResult<()> {
    Ok(())
}

fn insert() {
    let _ = SendMail::job();
    let _ = SendMail::NAME;
}

fn main() {}
