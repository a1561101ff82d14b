//! Who owns a row, whose turn it is, and what becomes of those who come late.

use std::time::Duration;

use gen_durable::Status;
use gen_durable::store::{ClaimRequest, DonePolicy, Flushed, NewInstance, Start, Transition};

use super::setup::{AHEAD, DONE, Fixture, QUEUE, READY, commit, done, next};

/// R02, R03: a frozen node wakes after its row was taken away.
#[tokio::test]
async fn late_outcome_of_a_reclaimed_row_is_dropped() {
    let f = Fixture::new().await;
    let late = f.claimed().await;
    f.bury(f.worker).await;
    assert_eq!(f.store.reclaim(10).await.expect("it reclaims")[0].count, 1);
    assert_eq!(f.flush(&[done(&late)]).await, [Flushed::Stale], "the row is ready");

    let other = f.store.register_worker("engine", "node").await.expect("of the same name");
    let row = f.claim_as(other, 1, 1).await.remove(0);
    assert_eq!((row.id, row.attempt, row.failures, row.crashes), (late.id, 1, 1, 1));
    assert_eq!(f.flush(&[done(&late)]).await, [Flushed::Stale], "the row is another's");
    assert_eq!(f.store.release(f.worker, &[late.held()]).await.expect("it is not the owner"), 0);
    assert_eq!(f.look(late.id).await.status, Status::Executing);
    let kept = f.store.flush(other, &[done(&row)], DonePolicy::Keep).await.expect("it flushes");
    assert_eq!(kept.fates, [DONE]);
}

/// R13: the commit went through and its acknowledgement was lost.
#[tokio::test]
async fn lost_acknowledgement_is_recognised_as_committed() {
    let f = Fixture::new().await;
    f.insert(2).await;
    let rows = f.claim(2).await;
    f.store.probe(&[rows[1].id], true).await.expect("somebody watches");
    let commits = [next(&rows[0]), done(&rows[1])];
    let answer = [READY, Flushed::Committed { status: Status::Done, watched: true }];
    assert_eq!(f.flush(&commits).await, answer);
    assert_eq!(f.flush(&commits).await, answer, "asked again");
    assert_eq!(f.look(rows[0].id).await.revision, 1, "committed once");
}

/// R14, R38: the store says that the data is at fault, and changes nothing.
#[tokio::test]
async fn bad_row_is_a_rejection_and_its_neighbours_stay_owned() {
    let f = Fixture::new().await;
    f.insert(2).await;
    let rows = f.claim(2).await;
    let broken = |output: &str| commit(&rows[1], Transition::Done { output: output.into() });
    for output in ["{", "\"\0\"", ""] {
        let commits = [done(&rows[0]), broken(output)];
        let error = f.store.flush(f.worker, &commits, DonePolicy::Keep).await.expect_err(output);
        assert!(error.is_rejection(), "{output:?}: {error:?}");
    }
    assert_eq!(f.flush(&[done(&rows[0])]).await, [DONE]);
    assert_eq!(f.look(rows[1].id).await.status, Status::Executing);
    let mut bad = f.instance();
    bad.state = "nonsense".into();
    let error = f.store.insert(&[f.instance(), bad]).await.expect_err("it is no JSON");
    assert!(error.is_rejection());
}

/// R15, R34: claims at the same moment share the rows.
#[tokio::test]
async fn claims_at_once_take_each_row_once() {
    let f = Fixture::new().await;
    let mut ids = f.insert(300).await;
    let claiming = (0..6).map(|claim| {
        let store = f.bed.store();
        let f = &f;
        async move {
            let worker = store.register_worker("engine", "node").await.expect("a worker");
            let mut taken = Vec::new();
            loop {
                let rows = f.claim_with(&*store, worker, claim, 20).await;
                if rows.is_empty() {
                    return taken;
                }
                taken.extend(rows.into_iter().map(|row| row.id));
            }
        }
    });
    let mut taken = futures_util::future::join_all(claiming).await.concat();
    taken.sort_unstable();
    ids.sort_unstable();
    assert_eq!(taken, ids);
}

/// R03: fenced, a worker takes nothing more.
#[tokio::test]
async fn claim_by_a_dead_or_missing_worker_takes_nothing() {
    let f = Fixture::new().await;
    f.insert(1).await;
    f.bury(f.worker).await;
    assert!(f.claim(1).await.is_empty());
    assert!(f.claim_as(gen_durable::WorkerId(4711), 1, 1).await.is_empty());
    let id = f.store.register_worker("engine", "node").await.expect("a worker");
    assert_eq!(f.claim_as(id, 1, 1).await.len(), 1);
}

/// R17: a poison pill takes no bystanders with it.
#[tokio::test]
async fn row_that_crashed_twice_is_claimed_alone_and_at_its_turn() {
    let f = Fixture::new().await;
    let pill = f.insert(1).await[0];
    for _ in 0..2 {
        let worker = f.store.register_worker("engine", "node").await.expect("a worker");
        assert_eq!(f.claim_as(worker, 1, 1).await[0].id, pill);
        f.bury(worker).await;
        f.store.reclaim(10).await.expect("it reclaims");
    }
    let others = f.insert(2).await;
    let queue: std::sync::Arc<str> = QUEUE.into();
    let machines = [f.machine];
    let busy = ClaimRequest {
        worker: f.worker,
        claim: 1,
        queue: &queue,
        machines: &machines,
        limit: 10,
        alone: false,
    };
    let claims = f.store.claim(&busy).await.expect("it claims");
    assert!(claims.rows.is_empty() && claims.left_suspects, "not by a worker that holds others: {claims:?}");
    let first = f.claim(10).await;
    assert_eq!((first.len(), first[0].id, first[0].crashes), (1, pill, 2), "alone, as the most urgent");
    f.store.release(f.worker, &[first[0].held()]).await.expect("it goes back");

    let urgent = NewInstance { priority: -1, ..f.instance() };
    f.store.insert(std::slice::from_ref(&urgent)).await.expect("it is inserted");
    let claims = f.store.claim(&busy).await.expect("it claims");
    assert!(claims.left_suspects, "it is told of them");
    let company: Vec<_> = claims.rows.iter().map(|row| row.id).collect();
    assert_eq!(company, [urgent.id, others[0], others[1]], "not among others");
    assert_eq!(f.claim(10).await[0].id, pill, "its turn");
}

/// Order is by priority, then time, whatever the machine.
#[tokio::test]
async fn order_is_by_priority_then_time_across_machines() {
    let f = Fixture::new().await;
    let machines = f.store.register_machines(&[("a", 1), ("b", 1), ("c", 1)]).await.expect("machines");
    let mut expected = Vec::new();
    for priority in [5, -5, 0] {
        for at in [-30, -10, -20] {
            for machine in [2, 0, 1] {
                let start = Start::At(chrono::Utc::now() + chrono::TimeDelta::seconds(at * 10 + machine));
                let machine = machines[machine as usize];
                let new = NewInstance { machine, priority, start, ..f.instance() };
                f.store.insert(std::slice::from_ref(&new)).await.expect("it is inserted");
                let Start::At(start) = start else { unreachable!() };
                expected.push((priority, start, new.id));
            }
        }
    }
    expected.sort();
    let mut taken = Vec::new();
    for claim in 0..30 {
        let rows = f.claim_for(&machines, claim, 4).await;
        taken.extend(rows.into_iter().map(|row| row.id));
    }
    assert_eq!(taken, expected.iter().map(|(.., id)| *id).collect::<Vec<_>>());
}

/// R45: rows of machines that this node lacks are left alone.
#[tokio::test]
async fn claim_takes_only_machines_that_the_node_runs() {
    let f = Fixture::new().await;
    let other = f.store.register_machines(&[("other", 1)]).await.expect("a machine");
    let foreign = NewInstance { machine: other[0], priority: -9, ..f.instance() };
    f.store.insert(std::slice::from_ref(&foreign)).await.expect("it is inserted");
    let mine = f.insert(1).await;
    assert_eq!(f.claim(10).await.iter().map(|row| row.id).collect::<Vec<_>>(), mine);
    assert_eq!(f.claim_for(&other, 2, 10).await[0].id, foreign.id);
}

/// R07: whoever marks after the end sees the end; whoever marks before is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watcher_sees_the_end_or_is_told_of_it() {
    let f = Fixture::new().await;
    let other = f.bed.store();
    for claim in 0..50 {
        f.insert(1).await;
        let row = f.claim_as(f.worker, claim, 1).await.remove(0);
        let (snapshot, flushed) =
            tokio::join!(async { other.probe(&[row.id], true).await.expect("it probes").remove(0) }, async {
                loop {
                    match f.flush(&[done(&row)]).await[0] {
                        Flushed::Locked => {}
                        fate => return fate,
                    }
                }
            });
        let told = flushed == Flushed::Committed { status: Status::Done, watched: true };
        assert!(snapshot.status.is_terminal() || told, "{snapshot:?}, {flushed:?}");
    }
}

/// R15, R16, R46: everything at once over the same rows, without a deadlock or a lost row.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sweeps_reclaims_flushes_and_probes_at_once_do_not_deadlock() {
    let f = Fixture::new().await;
    let ids = f.insert(400).await;
    let f = &f;
    let maintenance = (0..4).map(|n| {
        let (store, ids) = (f.bed.store(), &ids);
        async move {
            for round in 0..30 {
                store.reclaim(25).await.expect("it reclaims");
                store.sweep(Duration::ZERO, 25).await.expect("it sweeps");
                store.promote(25).await.expect("it promotes");
                let some = &ids[(round * 7 + n * 31) % 300..][..50];
                store.probe(some, true).await.expect("it probes");
            }
        }
    });
    let nodes = (0..3).map(|n| {
        let store = f.bed.store();
        async move {
            for claim in 0.. {
                let worker = store.register_worker("engine", "node").await.expect("a worker");
                let rows = f.claim_with(&*store, worker, claim, 30).await;
                if rows.is_empty() && claim > 10 {
                    break;
                }
                let mut flushed: Vec<_> = rows.iter().map(done).collect();
                let dies = claim % 3 == n && claim < 9;
                if dies {
                    flushed.truncate(rows.len() / 2);
                }
                flushed.sort_unstable_by_key(|commit| commit.held.id);
                while !flushed.is_empty() {
                    let flush = store.flush(worker, &flushed, DonePolicy::Keep).await.expect("it flushes");
                    let mut fates = flush.fates.into_iter();
                    flushed.retain(|_| fates.next() == Some(Flushed::Locked));
                }
                if dies {
                    store.retire(worker).await.expect("it dies");
                }
            }
        }
    });
    let maintenance = futures_util::future::join_all(maintenance);
    tokio::join!(maintenance, futures_util::future::join_all(nodes));
    loop {
        f.store.reclaim(1000).await.expect("it reclaims");
        let rows = f.claim(1000).await;
        let mut commits: Vec<_> = rows.iter().map(done).collect();
        commits.sort_unstable_by_key(|commit| commit.held.id);
        f.flush(&commits).await;
        let swept = f.store.sweep(Duration::ZERO, 1000).await.expect("it sweeps");
        if rows.is_empty() && swept.instances == 0 {
            break;
        }
    }
    assert!(f.store.probe(&ids, false).await.expect("it probes").is_empty(), "all ended and were swept");
}

/// R45: the head of the queue belongs to others.
#[tokio::test]
async fn rows_of_other_machines_do_not_use_up_the_limit() {
    let f = Fixture::new().await;
    let other = f.store.register_machines(&[("other", 1)]).await.expect("a machine")[0];
    let foreign: Vec<_> = (0..500)
        .map(|_| NewInstance { id: f.instance().id, machine: other, priority: -1, ..f.instance() })
        .collect();
    f.store.insert(&foreign).await.expect("they are inserted");
    f.insert(3).await;
    assert_eq!(f.claim(3).await.len(), 3);
}

#[tokio::test]
async fn a_kept_claim_goes_on_with_the_next_revision() {
    let f = Fixture::new().await;
    let row = f.claimed().await;
    let ahead = gen_durable::store::Commit { keeps_claim: true, ..next(&row) };
    assert_eq!(f.flush(std::slice::from_ref(&ahead)).await, [AHEAD]);
    assert_eq!(f.flush(&[ahead]).await, [AHEAD], "asked again");
    let seen = f.look(row.id).await;
    assert_eq!((seen.status, seen.revision, seen.step.as_str()), (Status::Executing, 1, "second"));
    let held = f.store.held(f.worker).await.expect("held");
    assert_eq!(held, [gen_durable::store::Held { revision: 1, ..row.held() }]);
    let row = gen_durable::store::Claimed { revision: 1, ..row };
    assert_eq!(f.flush(&[done(&row)]).await, [DONE]);
}

/// R01, R49: rows of dead workers come back, a bounded batch at a time; those of the living stay.
#[tokio::test]
async fn rows_of_dead_workers_are_reclaimed_in_batches() {
    let f = Fixture::new().await;
    f.insert(7).await;
    let alive = f.store.register_worker("engine", "alive").await.expect("a worker");
    assert_eq!(f.claim_as(f.worker, 1, 4).await.len(), 4);
    assert_eq!(f.claim_as(alive, 1, 3).await.len(), 3);
    f.bury(f.worker).await;
    let mut counts = Vec::new();
    for _ in 0..2 {
        counts.extend(f.store.reclaim(3).await.expect("it reclaims").iter().map(|r| (r.worker, r.count)));
    }
    assert_eq!(counts, [(f.worker, 3), (f.worker, 1)]);
    let back = f.claim_as(alive, 2, 10).await;
    assert_eq!(back.len(), 4);
    assert!(back.iter().all(|row| (row.attempt, row.failures, row.crashes) == (1, 1, 1)));
}

#[tokio::test]
async fn promotion_is_bounded_and_says_when_the_next_row_is_due() {
    let f = Fixture::new().await;
    let soon = NewInstance { start: Start::After(Duration::from_millis(1)), ..f.instance() };
    let rows: Vec<_> = (0..5)
        .map(|n| NewInstance { id: f.instance().id, queue: format!("q{}", n % 2).into(), ..soon.clone() })
        .collect();
    let far = NewInstance { start: Start::After(Duration::from_secs(60)), ..f.instance() };
    f.store.insert(&[rows, vec![far]].concat()).await.expect("they are inserted");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let first = f.store.promote(3).await.expect("it promotes");
    assert_eq!((first.count, first.next_due), (3, Some(Duration::ZERO)), "there is more");
    let second = f.store.promote(100).await.expect("it promotes");
    assert_eq!((second.count, second.queues.len()), (2, 2));
    let back = second.next_due.expect("the far one");
    assert!(back > Duration::from_secs(50) && back <= Duration::from_secs(60), "{back:?}");
}
