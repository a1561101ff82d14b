//! How many statements it takes to reach beyond rows: signals, children, keys; whatever their number.

use std::time::Duration;

use gen_durable::store::{Claimed, Commit, DonePolicy, KeyScope, NewInstance, NewKey, Parent};
use gen_durable_tests::Bed;

use super::counts::taken;
use crate::conformance::postgres::setup::{Fixture, done, fan_out, next, signal, wait};
use crate::support::logged_database;

type Taken = Vec<(&'static str, Vec<String>)>;

fn consuming(row: &Claimed) -> Commit {
    let mail = row.mail.as_deref().expect("there is mail");
    Commit { consumed: mail.awaited().map(|letter| letter.seq).collect(), ..next(row) }
}

async fn for_rows(count: usize) -> Taken {
    let (database, log) = logged_database().await;
    let f = Fixture::on(Bed::on(database).await).await;
    let mut all = Taken::new();
    let limit = u32::try_from(count).unwrap();
    f.insert(count).await;
    let rows = f.claim(limit).await;

    let commits: Vec<_> = rows.iter().map(|row| wait(row, &["a"], Some(Duration::ZERO))).collect();
    let (_, statements) = taken(&log, f.flush(&commits)).await;
    all.push(("instances wait", statements));
    let signals: Vec<_> = rows.iter().map(|row| signal(row.id, "a")).collect();
    let (sent, statements) = taken(&log, f.store.signal(&signals)).await;
    assert_eq!(sent.unwrap().len(), count);
    all.push(("signals wake them", statements));
    let (rows, statements) = taken(&log, f.claim(limit)).await;
    assert_eq!(rows.len(), count);
    all.push(("they are claimed with what they were sent", statements));
    let commits: Vec<_> = rows.iter().map(consuming).collect();
    let (_, statements) = taken(&log, f.flush(&commits)).await;
    all.push(("they consume that", statements));
    let rows = f.claim(limit).await;
    let ends: Vec<_> = rows.iter().map(done).collect();
    let (_, statements) = taken(&log, f.flush(&ends)).await;
    all.push(("they end", statements));

    let parent = f.claimed().await;
    let children = (0..count).map(|_| f.instance()).collect();
    let commit = [fan_out(&parent, children)];
    let (_, statements) = taken(&log, f.flush(&commit)).await;
    all.push(("a parent fans out", statements));
    let rows = f.claim(limit).await;
    assert_eq!(rows.len(), count);
    let ends: Vec<_> = rows.iter().map(done).collect();
    let (ended, statements) = taken(&log, f.store.flush(f.worker, &ends, DonePolicy::Keep)).await;
    assert_eq!(ended.unwrap().joined.queues.len(), 1);
    all.push(("its children end", statements));
    let (rows, statements) = taken(&log, f.claim(limit)).await;
    assert_eq!((rows.len(), rows[0].id), (1, parent.id));
    all.push(("it is claimed", statements));
    let round = Parent { id: parent.id, round: rows[0].round.unwrap() };
    let (read, statements) = taken(&log, f.store.children(round, "machine", None, 1_000)).await;
    assert_eq!(read.unwrap().len(), count);
    all.push(("it reads their results", statements));

    let parent = f.claimed().await;
    f.flush(&[fan_out(&parent, (0..count).map(|_| f.instance()).collect())]).await;
    let (_, statements) = taken(&log, f.store.cancel(parent.id, true)).await;
    all.push(("a parent is cancelled", statements));
    let (cascaded, statements) = taken(&log, f.store.cascade(1_000)).await;
    assert_eq!(cascaded.unwrap().cancelled.len(), count);
    all.push(("its children follow", statements));

    let keyed = |n| NewInstance {
        key: Some(NewKey { family: "machine", key: format!("k{n}"), scope: KeyScope::Live }),
        ..f.instance()
    };
    let keyed: Vec<_> = (0..count).map(keyed).collect();
    let (_, statements) = taken(&log, f.store.insert_keyed(&keyed)).await;
    all.push(("instances with keys are inserted", statements));
    let again: Vec<_> = keyed.iter().map(|row| NewInstance { id: f.instance().id, ..row.clone() }).collect();
    let (_, statements) = taken(&log, f.store.insert_keyed(&again)).await;
    all.push(("they are there already", statements));
    all
}

#[tokio::test]
async fn what_reaches_beyond_rows_takes_as_many_statements_for_300_as_for_3() {
    let few = for_rows(3).await;
    let many = for_rows(300).await;
    for ((what, few), (_, many)) in few.iter().zip(&many) {
        assert_eq!(few, many, "{what}");
        assert!(few.len() <= 5, "{what}: {few:?}");
    }
    let of = |what: &str| few.iter().find(|taken| taken.0 == what).map(|taken| taken.1.clone()).unwrap();
    assert_eq!(of("signals wake them"), ["signal"]);
    assert_eq!(of("they are claimed with what they were sent"), ["claim", "inbox"]);
    assert_eq!(of("it is claimed"), ["claim"]);
    assert_eq!(of("it reads their results"), ["children"]);
}
