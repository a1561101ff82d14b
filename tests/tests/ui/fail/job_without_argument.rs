use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

#[durable_job]
async fn send_mail() -> JobResult<()> {
    Ok(())
}

fn main() {}
