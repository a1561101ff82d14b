use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

#[durable_job(backoff = slowly, max_backoff = "5m")]
async fn send_mail(_: SendMail) -> JobResult<()> {
    Ok(())
}

fn slowly(_: u32) -> std::time::Duration {
    std::time::Duration::ZERO
}

fn insert() {
    let _ = SendMail::job();
    let _ = SendMail::NAME;
}

fn main() {}
