//! The options of an engine, their defaults, and what values they may have.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Error;

/// How nodes tell each other that there is work. Best effort: polling finds what a poke missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Poke {
    /// PostgreSQL's `LISTEN` and `NOTIFY`: work is picked up by any node within milliseconds.
    Postgres,
    /// Only within this engine; other nodes find work by polling.
    Local,
    /// Not at all: work is found by polling.
    None,
}

/// How ended instances are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gc {
    pub(crate) every: Duration,
    pub(crate) retention: Duration,
    pub(crate) batch: u32,
}

impl Default for Gc {
    /// Every 60 seconds, keeping 24 hours, 10,000 rows at a time.
    fn default() -> Self {
        Self { every: Duration::from_secs(60), retention: Duration::from_secs(24 * 60 * 60), batch: 10_000 }
    }
}

impl Gc {
    /// Looks for ended instances this often; 60 seconds by default.
    #[must_use]
    pub const fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Keeps an instance for this long after its end; 24 hours by default. Zero deletes instances that are
    /// done as they finish, unless somebody waits for their result; failed ones at the next sweep.
    #[must_use]
    pub const fn keep(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Deletes at most this many rows in one transaction; 10,000 by default.
    #[must_use]
    pub const fn batch(mut self, batch: u32) -> Self {
        self.batch = batch;
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) queues: BTreeMap<String, u32>,
    pub(crate) lease_ttl: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) max_poll_interval: Duration,
    /// What suits the store, if none is chosen.
    pub(crate) poke: Option<Poke>,
    pub(crate) reaper: Option<Duration>,
    pub(crate) gc: Option<Gc>,
    pub(crate) max_prefetch: u32,
    pub(crate) drain_timeout: Duration,
    pub(crate) payload_limit: usize,
    pub(crate) max_crashes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "default".into(),
            node: default_node(),
            queues: BTreeMap::from([("default".into(), 10)]),
            lease_ttl: Duration::from_secs(30),
            heartbeat: Duration::from_secs(5),
            poll_interval: Duration::from_secs(1),
            max_poll_interval: Duration::from_secs(5),
            poke: None,
            reaper: Some(Duration::from_secs(5)),
            gc: Some(Gc::default()),
            max_prefetch: 1_000,
            drain_timeout: Duration::from_secs(5),
            payload_limit: 1024 * 1024,
            max_crashes: 20,
        }
    }
}

/// Host name and process id.
fn default_node() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .unwrap_or_default();
    let host = match host.trim() {
        "" => "localhost",
        host => host,
    };
    format!("{host}:{}", std::process::id())
}

/// The most steps that one queue may run at once.
const MAX_CONCURRENCY: u32 = 100_000;
/// The longest an interval may be.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest an interval may be.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
/// The largest payload that any store keeps in one row.
const MAX_PAYLOAD: usize = 256 * 1024 * 1024;
/// The longest name of a queue, a node or an engine, in bytes.
pub(crate) const MAX_NAME: usize = 255;

impl Options {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        name("name", &self.name)?;
        name("node", &self.node)?;
        for (queue, concurrency) in &self.queues {
            name("queue", queue)?;
            if !(1..=MAX_CONCURRENCY).contains(concurrency) {
                return Err(Error::option(
                    "queue",
                    format!(
                        "`{queue}` may run between 1 and {MAX_CONCURRENCY} steps at once, not {concurrency}"
                    ),
                ));
            }
        }
        interval("lease_ttl", self.lease_ttl)?;
        interval("heartbeat", self.heartbeat)?;
        if self.heartbeat.saturating_mul(3) > self.lease_ttl {
            return Err(Error::option(
                "heartbeat",
                format!(
                    "{:?} is too long for a `lease_ttl` of {:?}: a third of it at most, so that two beats may fail",
                    self.heartbeat, self.lease_ttl
                ),
            ));
        }
        interval("poll_interval", self.poll_interval)?;
        interval("max_poll_interval", self.max_poll_interval)?;
        if self.max_poll_interval < self.poll_interval {
            return Err(Error::option(
                "max_poll_interval",
                format!(
                    "{:?} is shorter than `poll_interval`, {:?}",
                    self.max_poll_interval, self.poll_interval
                ),
            ));
        }
        if let Some(reaper) = self.reaper {
            interval("reaper", reaper)?;
        }
        if let Some(gc) = self.gc {
            interval("gc", gc.every)?;
            if gc.batch == 0 {
                return Err(Error::option("gc", "a batch of 0 rows deletes nothing; use 1 or more"));
            }
        }
        if self.max_prefetch > 100_000 {
            return Err(Error::option("max_prefetch", "at most 100,000 rows may be claimed ahead"));
        }
        if !(64..=MAX_PAYLOAD).contains(&self.payload_limit) {
            return Err(Error::option("payload_limit", format!("use between 64 and {MAX_PAYLOAD} bytes")));
        }
        if self.max_crashes == 0 {
            return Err(Error::option("max_crashes", "0 would start nothing; use 1 or more"));
        }
        Ok(())
    }
}

fn interval(option: &'static str, value: Duration) -> Result<(), Error> {
    if (MIN_INTERVAL..=MAX_INTERVAL).contains(&value) {
        return Ok(());
    }
    Err(Error::option(option, format!("use between {MIN_INTERVAL:?} and {MAX_INTERVAL:?}, not {value:?}")))
}

/// Checks the name of a queue, a node or an engine: any text that a database keeps.
pub(crate) fn name(option: &'static str, value: &str) -> Result<(), Error> {
    if value.is_empty() || value.len() > MAX_NAME || value.contains('\0') {
        return Err(Error::option(
            option,
            format!("{value:?} is no name: use 1 to {MAX_NAME} bytes of text without NUL characters"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(change: impl FnOnce(&mut Options)) -> String {
        let mut options = Options::default();
        change(&mut options);
        options.validate().expect_err("an option that cannot work").to_string()
    }

    #[test]
    fn the_defaults_are_valid() {
        Options::default().validate().expect("defaults");
    }

    #[test]
    fn every_bad_option_is_named_in_its_error() {
        assert!(problem(|o| o.name = String::new()).contains("`name`"));
        assert!(problem(|o| o.node = "a\0".into()).contains("`node`"));
        assert!(problem(|o| o.queues = [("mail".to_owned(), 0)].into()).contains("`mail`"));
        assert!(problem(|o| o.lease_ttl = Duration::ZERO).contains("`lease_ttl`"));
        assert!(problem(|o| o.heartbeat = o.lease_ttl).contains("`heartbeat`"));
        assert!(problem(|o| o.poll_interval = Duration::MAX).contains("`poll_interval`"));
        assert!(problem(|o| o.max_poll_interval = MIN_INTERVAL).contains("`max_poll_interval`"));
        assert!(problem(|o| o.reaper = Some(Duration::ZERO)).contains("`reaper`"));
        assert!(problem(|o| o.gc = Some(Gc::default().batch(0))).contains("`gc`"));
        assert!(problem(|o| o.max_prefetch = u32::MAX).contains("`max_prefetch`"));
        assert!(problem(|o| o.payload_limit = 0).contains("`payload_limit`"));
        assert!(problem(|o| o.max_crashes = 0).contains("`max_crashes`"));
    }
}
