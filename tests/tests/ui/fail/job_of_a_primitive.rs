use gen_durable::prelude::*;

#[derive(serde::Serialize, serde::Deserialize)]
struct SendMail {
    to: String,
}

#[durable_job]
async fn count(_: u64) -> JobResult<()> {
    Ok(())
}

fn main() {}
