//! Statements and their plans.

use gen_durable::store::sqlite::SqliteStore;
use gen_durable_tests::SqliteBed;
use sqlx::{AssertSqlSafe, Row};

/// Every statement is driven by an index, whatever the statistics say.
#[tokio::test]
async fn no_statement_reads_all_instances_but_counts() {
    let bed = SqliteBed::create().await;
    bed.store().check().await.expect("it opens").expect("it is migrated");
    let pool = bed.pool();
    for (name, text) in SqliteStore::statements() {
        let parameters = (1..=8).filter(|n| text.contains(&format!("?{n}"))).max().unwrap_or(0);
        let mut query = sqlx::query(AssertSqlSafe(format!("explain query plan {text}")));
        for _ in 0..parameters {
            query = query.bind("[]");
        }
        let plan = query.fetch_all(&pool).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let plan: Vec<String> = plan.iter().map(|row| row.get(3)).collect();
        let scans = plan.iter().any(|line| line == "SCAN i" || line == "SCAN gen_durable_instances");
        assert_eq!(scans, name == "counts", "{name}: {plan:#?}");
        if ["claim", "promote", "due", "sweep_instances"].contains(&name) {
            assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{name} sorts: {plan:#?}");
        }
    }
}
