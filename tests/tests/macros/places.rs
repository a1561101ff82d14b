//! Machines and jobs in functions and modules, of every visibility, with private types and `cfg`s, and
//! through a path of their own to the crate.
#![deny(warnings)]

mod vendored {
    pub(crate) use ::gen_durable as durable;
}

mod renamed {
    use super::vendored::durable::prelude::*;

    #[derive(Signal, serde::Serialize, serde::Deserialize)]
    #[signal(crate = super::vendored::durable)]
    pub(crate) struct Paid;

    #[derive(Signal, serde::Serialize, serde::Deserialize)]
    #[signal(crate = super::vendored::durable, name = "off")]
    pub(crate) struct Cancelled;

    #[durable_fsm(crate = super::vendored::durable, signals(Paid, Cancelled))]
    pub(crate) enum Checkout {
        #[state(finishes)]
        Start,
    }

    pub(crate) struct Steps;

    impl CheckoutSteps for Steps {
        async fn start(&self, _: Start, cx: &mut Context<Start>) -> StepResult<Start> {
            Ok(cx.done(()))
        }
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(crate) struct Sweep;

    #[durable_job(crate = super::vendored::durable)]
    async fn sweep(_: Sweep) -> JobResult<()> {
        Ok(())
    }
}

mod nested {
    #[derive(gen_durable::Signal, serde::Serialize, serde::Deserialize)]
    struct Cancelled;

    pub(crate) mod inner {
        use gen_durable::prelude::*;

        struct Order {
            id: i64,
        }

        #[derive(Signal, serde::Serialize, serde::Deserialize)]
        pub(in crate::places::nested) struct Paid;

        #[durable_fsm(signals(Paid, super::Cancelled))]
        pub(in crate::places::nested) enum Visible {
            #[state(finishes)]
            Start { id: i64 },
        }

        pub(super) struct Steps;

        impl VisibleSteps for Steps {
            async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
                let order = Order { id: s.id };
                Ok(if order.id > 0 { cx.done(()) } else { cx.stop("no order") })
            }
        }
    }

    pub(crate) fn run() {
        let _ = inner::Visible::machine(inner::Steps);
        let _ = inner::Visible::from(inner::Start { id: 1 });
    }
}

fn in_a_function() {
    use gen_durable::prelude::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Local(i64);

    #[derive(Signal, serde::Serialize, serde::Deserialize)]
    struct Paid(Local);

    #[derive(Signal, serde::Serialize, serde::Deserialize)]
    enum Cancelled {
        Now,
    }

    #[durable_fsm(output = Local, signals(Paid, Cancelled))]
    enum Checkout {
        #[cfg(any())]
        Never { missing: Missing },
        #[cfg_attr(all(), state(finishes))]
        Start {
            local: Local,
            #[cfg(any())]
            missing: Missing,
            #[cfg(not(any()))]
            found: i64,
        },
    }

    struct Steps;

    impl CheckoutSteps for Steps {
        async fn start(&self, s: Start, cx: &mut Context<Start>) -> StepResult<Start> {
            Ok(cx.done(Local(s.local.0 + s.found)))
        }
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Sweep;

    #[durable_job]
    async fn sweep(_: Sweep) -> JobResult<()> {
        Ok(())
    }

    #[durable_job]
    #[cfg(any())]
    async fn never(_: Missing) -> JobResult<()> {
        Ok(())
    }

    let _ = Checkout::machine(Steps);
    let _ = Sweep::job();
}

mod job_in_a_module {
    use gen_durable::prelude::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(crate) struct Ping {
        pub(crate) host: String,
    }

    #[durable_job(backoff = linear)]
    pub(crate) async fn ping(Ping { host }: Ping, cx: &mut Context<Ping>) -> Result<usize, std::io::Error> {
        let _ = cx.attempt();
        Ok(host.len())
    }

    fn linear(failures: u32) -> std::time::Duration {
        std::time::Duration::from_secs(failures.into())
    }
}

#[test]
fn they_work_everywhere() {
    use gen_durable::Job;

    let _ = renamed::Checkout::machine(renamed::Steps);
    let _ = renamed::Sweep::job();
    nested::run();
    in_a_function();
    let _ = job_in_a_module::Ping::job();
    let _ = job_in_a_module::ping;
}
