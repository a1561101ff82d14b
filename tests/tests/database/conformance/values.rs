//! Values that could break something on their way into the database and back.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use gen_durable::Status;
use gen_durable::store::{ClaimRequest, NewInstance, Start, Transition};

use super::setup::{DONE, FAILED, Fixture, SCHEDULED, commit, next_after, stop};

/// R42
#[tokio::test]
async fn names_of_any_characters_work() {
    let f = Fixture::new().await;
    let odd = "it's \"odd\"; drop table -- $1 {schema} \\ ☃ 名前 select";
    let machine = f.store.register_machines(&[(odd, 1)]).await.expect("a machine")[0];
    let worker = f.store.register_worker(odd, odd).await.expect("a worker");
    let new = NewInstance {
        machine,
        step: "it's \"odd\"; ☃",
        queue: odd.into(),
        trace_context: Some(odd.into()),
        ..f.instance()
    };
    f.store.insert(std::slice::from_ref(&new)).await.expect("it is inserted");
    let request =
        ClaimRequest { worker, claim: 1, queue: &new.queue, machines: &[machine], limit: 1, alone: true };
    let row = f.store.claim(&request).await.expect("it claims").rows.remove(0);
    assert_eq!((row.step.as_str(), row.trace_context.as_deref()), (new.step, Some(odd)));
    let flushed = f.store.flush(worker, &[stop(&row, odd)], gen_durable::store::DonePolicy::Keep).await;
    assert_eq!(flushed.expect("it flushes").fates, [FAILED]);
    let seen = f.look(new.id).await;
    assert_eq!((seen.machine.as_str(), seen.queue.as_str()), (odd, odd));
    assert_eq!((seen.step.as_str(), seen.error.as_deref()), (new.step, Some(odd)));
}

/// R40
#[tokio::test]
async fn json_comes_back_letter_by_letter() {
    let f = Fixture::new().await;
    let states = [
        r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":340282366920938463463374607431768211455}"#,
        r#"{"z":1,"a":2,"z":3}"#,
        r#"[1.0,1e400,0.1000000000000000055511151231257827,"\u00e9é\n",null]"#,
        "null",
        "\"\\\\u0000\"",
    ];
    let new: Vec<_> = states
        .iter()
        .map(|state| NewInstance { id: f.instance().id, state: (*state).into(), ..f.instance() })
        .collect();
    f.store.insert(&new).await.expect("they are inserted");
    let rows = f.claim(10).await;
    for (row, state) in rows.iter().zip(states) {
        assert_eq!(row.state, state);
    }
    for (row, output) in rows.iter().zip(states) {
        assert_eq!(f.flush(&[commit(row, Transition::Done { output: output.into() })]).await, [DONE]);
        let seen = f.look(row.id).await;
        assert_eq!(seen.output.as_deref(), Some(output));
        assert_eq!(seen.state, output, "the last state stays");
    }
}

/// R22
#[tokio::test]
async fn extreme_delays_and_instants_saturate_and_harm_nobody() {
    let f = Fixture::new().await;
    let starts = [
        Start::After(Duration::MAX),
        Start::After(Duration::from_nanos(1)),
        Start::At(DateTime::<Utc>::MIN_UTC),
        Start::At(DateTime::<Utc>::MAX_UTC),
        Start::After(Duration::ZERO),
    ];
    let new: Vec<_> =
        starts.map(|start| NewInstance { start, id: f.instance().id, ..f.instance() }).into_iter().collect();
    f.store.insert(&new).await.expect("they are inserted");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let promoted = f.store.promote(10).await.expect("it promotes");
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let next_due = promoted.next_due.expect("the far ones");
    assert!(promoted.count == 1 && next_due <= century && next_due + Duration::from_secs(60) > century);
    assert_eq!(f.claim(10).await.len(), 3);
    assert_eq!(
        f.look(new[2].id).await.eligible_at.expect("an instant").to_string(),
        "0001-01-01 00:00:00 UTC"
    );
    assert_eq!(f.look(new[3].id).await.status, Status::Scheduled);

    let row = f.claim_as(f.worker, 2, 10).await;
    assert!(row.is_empty());
    let row = f.claimed().await;
    assert_eq!(f.flush(&[next_after(&row, Duration::MAX)]).await, [SCHEDULED]);
    assert!(f.look(row.id).await.eligible_at > Some(Utc::now() + TimeDelta::days(36_000)));
    f.store.sweep(Duration::MAX, 10).await.expect("nothing is that old");
    f.store.sweep(Duration::from_nanos(1), 10).await.expect("it sweeps");
}

/// Larger than one statement takes: all or nothing.
#[tokio::test]
async fn large_inserts_are_cut_into_statements_and_stay_atomic() {
    let f = Fixture::new().await;
    let state = format!("\"{}\"", "x".repeat(1024 * 1024));
    let mut new: Vec<_> = (0..9).map(|_| NewInstance { state: state.clone(), ..f.instance() }).collect();
    let last = new.len() - 1;
    new[last].state = "broken".into();
    assert!(f.store.insert(&new).await.expect_err("the last one").is_rejection());
    let ids: Vec<_> = new.iter().map(|new| new.id).collect();
    assert!(f.store.probe(&ids, false).await.expect("it reads").is_empty());
    new[last].state = "1".into();
    f.store.insert(&new).await.expect("they are inserted");
    assert_eq!(f.store.probe(&ids, false).await.expect("it reads").len(), 9);
    assert_eq!(f.claim(1).await[0].state, state);
}
