//! What the engine's statements take and give, read from the statements themselves.

use gen_durable::store::postgres::{PostgresStore, Schema};
use gen_durable_tests::Bed;
use sqlx::{Column, Either, Executor, Statement, TypeInfo};

/// Name, types of parameters, and names and types of columns of each statement.
async fn described(bed: &Bed) -> Vec<(&'static str, Vec<String>, Vec<(String, String)>)> {
    let store = PostgresStore::new(bed.pool.clone(), Schema::default(), None);
    let mut all = Vec::new();
    for (name, text) in store.statements() {
        let statement = bed.pool.acquire().await.unwrap().prepare(text).await.expect(name);
        let Some(Either::Left(parameters)) = statement.parameters() else { panic!("{name} is prepared") };
        let parameters = parameters.iter().map(|ty| ty.name().to_owned()).collect();
        let columns = statement.columns().iter();
        let columns = columns.map(|c| (c.name().to_owned(), c.type_info().name().to_owned())).collect();
        all.push((name, parameters, columns));
    }
    all
}

/// R20
#[tokio::test]
async fn no_statement_takes_an_instant_from_a_nodes_clock() {
    let bed = Bed::create().await;
    let all = described(&bed).await;
    assert!(all.len() > 15, "there are statements");
    for (name, parameters, _) in all {
        let instants = parameters.iter().filter(|ty| ty.contains("TIME") || ty.contains("DATE")).count();
        // An insert takes what the caller gave to `run_at`, and nothing else.
        assert_eq!(instants, usize::from(name.starts_with("insert")), "{name} takes {parameters:?}");
    }
}

/// R49
#[tokio::test]
async fn only_claims_and_asked_for_reads_carry_states() {
    let bed = Bed::create().await;
    for (name, parameters, columns) in described(&bed).await {
        let states =
            columns.iter().filter(|(column, _)| ["state", "output"].contains(&column.as_str())).count();
        let expected = match name {
            "claim" | "children" => 1,
            "probe" => 2,
            _ => 0,
        };
        assert_eq!(states, expected, "{name} returns {columns:?}");
        // No statement takes or returns whole rows or JSON by other names.
        assert!(
            columns.iter().all(|(_, ty)| !ty.contains("JSON") && !ty.contains("RECORD")),
            "{name}: {columns:?}"
        );
        assert!(parameters.iter().all(|ty| !ty.contains("JSON")), "{name}: {parameters:?}");
    }
}
