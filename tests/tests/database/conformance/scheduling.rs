//! Who runs first, and when.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use gen_durable::Status;
use gen_durable::prelude::*;
use gen_durable_tests::TestClock;
use tokio::sync::{Semaphore, mpsc};

use super::Bed;
use crate::support::{LATE, NEVER, SOON, soon};

mod vans {
    use super::*;

    #[durable_fsm(name = "van", queue = "road")]
    pub enum Van {
        #[state(finishes)]
        Drive { name: String },
    }
}

mod bikes {
    use super::*;

    #[durable_fsm(name = "bike", queue = "road")]
    pub enum Bike {
        #[state(finishes)]
        Ride { name: String },
    }
}

/// Tells who came; the one named "gate" waits until it is opened.
#[derive(Clone)]
struct Traffic {
    seen: mpsc::UnboundedSender<String>,
    gate: Arc<Semaphore>,
}

impl Traffic {
    async fn pass(&self, name: String) -> Result<(), StepError> {
        let gated = name == "gate";
        self.seen.send(name)?;
        if gated {
            self.gate.acquire().await?.forget();
        }
        Ok(())
    }
}

impl vans::VanSteps for Traffic {
    async fn drive(&self, s: vans::Drive, cx: &mut Context<vans::Drive>) -> StepResult<vans::Drive> {
        self.pass(s.name).await?;
        Ok(cx.done(()))
    }
}

impl bikes::BikeSteps for Traffic {
    async fn ride(&self, s: bikes::Ride, cx: &mut Context<bikes::Ride>) -> StepResult<bikes::Ride> {
        self.pass(s.name).await?;
        Ok(cx.done(()))
    }
}

#[tokio::test]
async fn lower_priority_runs_first_then_the_longest_due_whatever_the_machine() {
    let bed = Bed::create().await;
    let (seen, mut came) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let traffic = Traffic { seen, gate: Arc::clone(&gate) };
    let (vans, bikes) = (vans::Van::machine(traffic.clone()), bikes::Bike::machine(traffic));
    let engine = bed.engine().queue("road", 1).register(vans).register(bikes).start().await.unwrap();
    let drive = |name: &str| vans::Drive { name: name.into() };
    let ride = |name: &str| bikes::Ride { name: name.into() };
    engine.insert(drive("gate")).await.unwrap();
    assert_eq!(soon(came.recv()).await.unwrap(), "gate");

    // All due while the only slot is taken.
    let ago = |seconds| Utc::now() - TimeDelta::seconds(seconds);
    engine.insert(drive("5th")).priority(1).run_at(ago(10)).await.unwrap();
    engine.insert(ride("3rd")).run_at(ago(20)).await.unwrap();
    engine.insert(ride("6th")).priority(i16::MAX).run_at(ago(1000)).await.unwrap();
    engine.insert(drive("2nd")).run_at(ago(30)).await.unwrap();
    engine.insert(drive("4th")).priority(1).run_at(ago(20)).await.unwrap();
    engine.insert(ride("1st")).priority(i16::MIN).await.unwrap();
    gate.add_permits(1);
    for expected in ["1st", "2nd", "3rd", "4th", "5th", "6th"] {
        assert_eq!(soon(came.recv()).await.unwrap(), expected);
    }
}

/// When a step ran, by the database's clock.
#[durable_fsm(name = "alarm", output = i64)]
pub enum Alarm {
    #[state(finishes)]
    Ring {},
}

struct Clocks(TestClock);

impl AlarmSteps for Clocks {
    async fn ring(&self, _: Ring, cx: &mut Context<Ring>) -> StepResult<Ring> {
        Ok(cx.done(self.0.micros().await))
    }
}

/// Asserts that what was due at `due` ran on time.
fn on_time(ran: i64, due: DateTime<Utc>, what: &str) {
    let late = ran - due.timestamp_micros();
    assert!(late >= 0, "{what}: {} us early", -late);
    assert!(i128::from(late) < LATE.as_micros() as i128, "{what}: {late} us late");
}

#[tokio::test]
async fn a_delayed_instance_is_never_early_and_not_late_on_an_idle_engine() {
    let bed = Bed::create().await;
    // Nothing is found by polling in time.
    let engine = bed.engine().poll_interval(NEVER).max_poll_interval(NEVER);
    let engine = engine.register(Alarm::machine(Clocks(bed.clock()))).start().await.unwrap();
    for (n, delay) in [1, 30, 300, 2].into_iter().enumerate() {
        let delay = Duration::from_millis(delay);
        let alarm = if n == 2 {
            let at = DateTime::from_timestamp_micros(bed.clock().micros().await).unwrap() + delay;
            let alarm = engine.insert(Ring {}).run_at(at).await.unwrap();
            assert_eq!(engine.get(alarm.id()).await.unwrap().unwrap().eligible_at, Some(at));
            alarm
        } else {
            engine.insert(Ring {}).delay(delay).await.unwrap()
        };
        let ran = alarm.result().within(SOON).await.unwrap().done().unwrap();
        on_time(
            ran,
            engine.get(alarm.id()).await.unwrap().unwrap().eligible_at.unwrap(),
            &format!("{delay:?}"),
        );
    }
}

/// R22
#[tokio::test]
async fn extreme_times_are_kept_as_near_as_the_database_can_and_hold_up_nobody() {
    let bed = Bed::create().await;
    let engine = bed.engine().register(Alarm::machine(Clocks(bed.clock()))).start().await.unwrap();
    let far = [
        engine.insert(Ring {}).delay(Duration::MAX).await.unwrap(),
        engine.insert(Ring {}).run_at(DateTime::<Utc>::MAX_UTC).await.unwrap(),
    ];
    let bulk = engine.insert_all([Ring {}]).delay(Duration::MAX).await.unwrap();
    let now = [
        engine.insert(Ring {}).delay(Duration::ZERO).await.unwrap(),
        engine.insert(Ring {}).delay(Duration::from_nanos(1)).await.unwrap(),
        engine.insert(Ring {}).run_at(DateTime::<Utc>::MIN_UTC).await.unwrap(),
        engine.insert(Ring {}).run_at(DateTime::UNIX_EPOCH).await.unwrap(),
    ];
    for alarm in now {
        alarm.result().within(SOON).await.unwrap().done().unwrap();
    }
    for id in far.iter().map(gen_durable::Handle::id).chain(bulk) {
        let alarm = engine.get(id).await.unwrap().unwrap();
        assert_eq!(alarm.status, Status::Scheduled);
        let at = alarm.eligible_at.unwrap();
        assert!((at - alarm.created_at).num_days() >= 36_500, "{at}");
    }
}
