use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

#[durable_job(max_attemps = 3, cron = "0 9 * * *")]
async fn send_mail(_: SendMail) -> JobResult<()> {
    Ok(())
}

fn insert() {
    let _ = SendMail::job();
    let _ = SendMail::NAME;
}

fn main() {}
