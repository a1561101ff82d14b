//! Versions side by side on many nodes.

use std::time::Duration;

use gen_durable::Status;
use gen_durable::prelude::*;
use gen_durable_tests::Bed;

const SOON: Duration = Duration::from_secs(20);

/// The present version.
#[durable_fsm(name = "countdown", version = 8, queue = "countdown")]
enum Present {
    #[state(finishes)]
    Count { n: u32 },
}

struct Steps;

impl PresentSteps for Steps {
    async fn count(&self, _: Count, cx: &mut Context<Count>) -> StepResult<Count> {
        Ok(cx.done(()))
    }
}

/// An earlier version, which only some nodes run.
mod earlier {
    use gen_durable::prelude::*;

    #[durable_fsm(name = "countdown", version = 7, queue = "countdown")]
    pub(super) enum Earlier {
        #[state(finishes)]
        Only { n: u32 },
    }

    pub(super) struct Steps;

    impl EarlierSteps for Steps {
        async fn only(&self, _: Only, cx: &mut Context<Only>) -> StepResult<Only> {
            Ok(cx.done(()))
        }
    }
}

/// R45
#[tokio::test]
async fn rows_of_a_version_that_no_node_runs_are_set_aside_and_come_back_with_a_node_that_does() {
    use earlier::{Earlier, Only};
    let bed = Bed::create().await;
    let engine = bed
        .engine()
        .queue("countdown", 4)
        .lease_ttl(Duration::from_millis(300))
        .heartbeat(Duration::from_millis(100))
        .reaper(Duration::from_millis(50))
        .register(Present::machine(Steps))
        .start()
        .await
        .unwrap();
    engine.insert_all((0..2_500).map(|n| Only { n })).await.unwrap();
    let status = "select status::text, count(*) from gen_durable.instances group by status";
    loop {
        let rows: Vec<(String, i64)> = sqlx::query_as(status).fetch_all(&bed.pool).await.unwrap();
        if rows == [("blocked".to_owned(), 2_500)] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // One that is inserted from now on is set aside from the beginning, and holds up nobody.
    let late = engine.insert(Only { n: 0 }).await.unwrap();
    assert_eq!(engine.get(late.id()).await.unwrap().unwrap().status, Status::Blocked);
    let other = engine.insert(Count { n: 1 }).await.unwrap();
    assert_eq!(other.result().within(SOON).await.unwrap().done().unwrap(), ());

    let older =
        bed.engine().queue("countdown", 4).register(Earlier::machine(earlier::Steps)).start().await.unwrap();
    late.result().within(SOON).await.unwrap().done().unwrap();
    loop {
        let counts = engine.counts().await.unwrap();
        let done = counts.iter().find(|count| count.version == 7 && count.status == Status::Done);
        if done.is_some_and(|done| done.count == 2_501) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    older.shutdown().await;
    engine.shutdown().await;
}
