//! Waiting for what happens elsewhere: in a database or another process, where no hook can tell us.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// How long to rest between two looks.
const REST: Duration = Duration::from_millis(20);

/// Looks until `look` is true.
///
/// # Panics
///
/// After a minute, naming `what` did not happen.
pub async fn until<F: Future<Output = bool>>(what: &str, look: impl FnMut() -> F) {
    until_within(LIMIT, what, look).await;
}

/// Looks until `look` is true, for no longer than `limit`. Returns how long it took.
///
/// # Panics
///
/// After that time, naming `what` did not happen.
pub async fn until_within<F: Future<Output = bool>>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> Duration {
    let start = Instant::now();
    while !look().await {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(REST).await;
    }
    start.elapsed()
}
