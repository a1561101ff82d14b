//! Correlation keys, at the seam: for how long they are taken, and whom they find.

use std::time::Duration;

use gen_durable::store::{Delivered, DonePolicy, Inserted, KeyScope, NewInstance, NewKey, Retrying};

use super::setup::{Fixture, STORED, done, stop};

fn keyed(f: &Fixture, family: &'static str, key: &str, scope: KeyScope) -> NewInstance {
    NewInstance { key: Some(NewKey { family, key: key.into(), scope }), ..f.instance() }
}

async fn insert(f: &Fixture, instances: &[NewInstance]) -> Vec<Inserted> {
    f.store.insert_keyed(instances).await.expect("it inserts")
}

#[tokio::test]
async fn a_key_that_is_taken_says_by_whom() {
    let f = Fixture::new().await;
    let new = |family| keyed(&f, family, "k", KeyScope::Live);
    let batch = [new("machine"), new("machine"), new("other")];
    let [first, _, other] = &batch;
    let exists = Inserted::Exists(first.id);
    let answer = [Inserted::Created, exists, Inserted::Created];
    assert_eq!(insert(&f, &batch).await, answer, "the first one wins, and machines are apart");
    assert_eq!(insert(&f, &batch).await, answer, "asked again after a lost answer");
    assert_eq!(insert(&f, &[new("machine")]).await, [exists]);
    let seen = f.look(first.id).await;
    assert_eq!(seen.correlation_key.as_deref(), Some("k"));
    assert_eq!(f.store.find("other", "k").await.expect("it finds"), [other.id]);
}

#[tokio::test]
async fn versions_of_a_machine_share_its_keys() {
    let f = Fixture::new().await;
    let machine = f.store.register_machines(&[("machine", 2)]).await.expect("a machine")[0];
    let old = keyed(&f, "machine", "k", KeyScope::Live);
    let new = NewInstance { machine, ..keyed(&f, "machine", "k", KeyScope::Live) };
    assert_eq!(insert(&f, &[old.clone(), new]).await[1], Inserted::Exists(old.id));
}

#[tokio::test]
async fn a_key_is_taken_for_as_long_as_its_scope_says() {
    let f = Fixture::new().await;
    let new = |scope: KeyScope| keyed(&f, "machine", scope.as_str(), scope);
    let scopes = [KeyScope::Live, KeyScope::Row, KeyScope::Address];
    let first = scopes.map(new);
    assert_eq!(insert(&f, &first).await, [Inserted::Created; 3]);
    let taken = [Inserted::Exists(first[0].id), Inserted::Exists(first[1].id), Inserted::Created];
    assert_eq!(insert(&f, &scopes.map(new)).await, taken, "while it lives");
    let rows = f.claim(3).await;
    let mut ends: Vec<_> = rows.iter().map(done).collect();
    ends.sort_unstable_by_key(|commit| commit.held.id);
    // Where done rows are deleted at once, one that reserves its key stays.
    f.store.flush(f.worker, &ends, DonePolicy::Delete).await.expect("it flushes");
    let taken = [Inserted::Created, Inserted::Exists(first[1].id), Inserted::Created];
    assert_eq!(insert(&f, &scopes.map(new)).await, taken, "while its row is there");
    f.store.sweep(Duration::ZERO, 10).await.expect("it sweeps");
    assert_eq!(insert(&f, &[new(KeyScope::Row)]).await, [Inserted::Created], "after its row is gone");
}

#[tokio::test]
async fn a_key_finds_live_instances_first_and_the_latest_first() {
    let f = Fixture::new().await;
    let ended = keyed(&f, "machine", "k", KeyScope::Address);
    insert(&f, std::slice::from_ref(&ended)).await;
    let row = f.claim(1).await.remove(0);
    f.flush(&[done(&row)]).await;
    let mut ids = vec![];
    for _ in 0..2 {
        let live = keyed(&f, "machine", "k", KeyScope::Address);
        insert(&f, std::slice::from_ref(&live)).await;
        ids.push(live.id);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let found = f.store.find("machine", "k").await.expect("it finds");
    assert_eq!(found, [ids[1], ids[0], ended.id]);
    assert!(f.store.find("machine", "none").await.expect("it finds").is_empty());
}

#[tokio::test]
async fn a_signal_goes_to_the_live_instance_with_the_key() {
    let f = Fixture::new().await;
    let new = || keyed(&f, "machine", "k", KeyScope::Address);
    let first = new();
    insert(&f, std::slice::from_ref(&first)).await;
    assert_eq!(f.send("k", "a").await, STORED);
    assert_eq!(f.look(first.id).await.inbox, 1);
    insert(&f, &[new()]).await;
    assert_eq!(f.send("k", "a").await, Delivered::Ambiguous, "two live ones");
    let mut ends: Vec<_> = f.claim(2).await.iter().map(done).collect();
    ends.sort_unstable_by_key(|commit| commit.held.id);
    f.flush(&ends[..1]).await;
    assert_eq!(f.send("k", "a").await, STORED, "one of them is left");
    f.flush(&ends[1..]).await;
    assert_eq!(f.send("k", "a").await, Delivered::NoTarget, "none is left");
}

#[tokio::test]
async fn a_failed_instance_does_not_run_again_while_another_has_its_key() {
    let f = Fixture::new().await;
    let new = || keyed(&f, "machine", "k", KeyScope::Live);
    let first = new();
    insert(&f, std::slice::from_ref(&first)).await;
    let row = f.claim(1).await.remove(0);
    f.flush(&[stop(&row, "no use")]).await;
    let second = new();
    assert_eq!(insert(&f, std::slice::from_ref(&second)).await, [Inserted::Created]);
    assert_eq!(f.store.retry(first.id).await.expect("it answers"), Retrying::KeyTaken(second.id));
    let row = f.claim(1).await.remove(0);
    f.flush(&[stop(&row, "no use either")]).await;
    assert_eq!(f.store.retry(first.id).await.expect("it answers"), Retrying::Ready("default".into()));
    assert_eq!(f.store.retry(second.id).await.expect("it answers"), Retrying::KeyTaken(first.id));
}

#[tokio::test]
async fn a_bulk_of_keys_is_inserted_and_answered_in_order() {
    let f = Fixture::new().await;
    let keys: Vec<String> = (0..300).map(|n| format!("k{}", n % 200)).collect();
    let batch: Vec<_> = keys.iter().map(|key| keyed(&f, "machine", key, KeyScope::Live)).collect();
    let answers = insert(&f, &batch).await;
    assert!(answers[..200].iter().all(|answer| *answer == Inserted::Created));
    let exists: Vec<_> = batch[..100].iter().map(|row| Inserted::Exists(row.id)).collect();
    assert_eq!(answers[200..], exists);
}
