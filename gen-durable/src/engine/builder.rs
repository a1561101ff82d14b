//! Building and starting an engine.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::core::Core;
use super::flusher::{self, Committer, Flusher, Handed};
use super::inline::Inline;
use super::inserter::{self, Inserter, Orders};
use super::keyed::{self, Keyed};
use super::kin::{self, Kin};
use super::lease::Worker;
use super::options::{Gc, Options, Poke};
use super::poke::{self, Pokes};
use super::queue::Queue;
use super::registry::{self, Registry};
use super::results::{self, Question, Results};
use super::scheduler::{self, Solo};
use super::source::Source;
use super::timer::{self, Timer};
use super::{Engine, Loops, gc, names, reaper, source};
use crate::context::{Resources, StepScope};
use crate::error::Error;
use crate::machine::{Discovered, MachineEntry};
use crate::store::Tenure;
use crate::telemetry::Events;

/// Builds an [`Engine`]. Every option has a default; what cannot work is refused by [`start`](Self::start).
#[must_use = "an engine runs only once it is started"]
pub struct EngineBuilder {
    source: Source,
    options: Options,
    default_queues: bool,
    entries: Vec<MachineEntry>,
    jobs: Option<Vec<MachineEntry>>,
    resources: Resources,
}

/// An engine without its loops, and what they will read from.
struct Prepared {
    core: Arc<Core>,
    outcomes: mpsc::UnboundedReceiver<Handed>,
    orders: Orders,
    keyed_orders: mpsc::UnboundedReceiver<keyed::Order>,
    told: mpsc::UnboundedReceiver<crate::store::Poke>,
    asked: mpsc::UnboundedReceiver<Question>,
    loops: Loops,
}

impl std::fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EngineBuilder {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            options: Options::default(),
            default_queues: true,
            entries: Vec::new(),
            jobs: None,
            resources: Resources::default(),
        }
    }

    /// Names this engine; `"default"` by default. Two engines of one process need two names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// The schema of the tables; `"gen_durable"` by default. For PostgreSQL.
    #[cfg(feature = "postgres")]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.source.set_schema(schema.into());
        self
    }

    /// Names this node; host name and process id by default. A name that stays the same over restarts lets
    /// the new process take the claims of the old one back after two missed beats.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.options.node = node.into();
        self
    }

    /// Runs this queue, at most `concurrency` steps at once on this node. Without any queue named, an engine
    /// runs the queue `default` with 10.
    pub fn queue(mut self, queue: impl Into<String>, concurrency: u32) -> Self {
        if std::mem::take(&mut self.default_queues) {
            self.options.queues.clear();
        }
        self.options.queues.insert(queue.into(), concurrency);
        self
    }

    /// Runs no queue: inserts, results and maintenance only.
    pub fn without_queues(mut self) -> Self {
        self.default_queues = false;
        self.options.queues.clear();
        self
    }

    /// Adds a machine: `Checkout::machine(steps)`.
    pub fn register(mut self, machine: MachineEntry) -> Self {
        self.entries.push(machine);
        self
    }

    /// Runs these jobs, `SendMail::job()`, and no others. Without it, the engine runs all jobs and machines
    /// that were discovered at link time.
    pub fn jobs(mut self, jobs: impl IntoIterator<Item = MachineEntry>) -> Self {
        self.jobs.get_or_insert_default().extend(jobs);
        self
    }

    /// Holds a value for the jobs that declare its type in `resources(...)`.
    pub fn resource<T: Any + Send + Sync>(mut self, resource: T) -> Self {
        self.resources.insert(TypeId::of::<T>(), Arc::new(resource));
        self
    }

    /// A direct address for the listener, when the pool goes through a connection pooler. For PostgreSQL.
    #[cfg(feature = "postgres")]
    pub fn listen_url(mut self, url: impl Into<String>) -> Self {
        self.source.set_listen_url(url.into());
        self
    }

    /// Whether the pool leads through a connection pooler in transaction mode, such as PgBouncer; false by default.
    ///
    /// Such a pooler lends a session of the server for one transaction, so the engine then names no prepared
    /// statement and puts each of its statements between `begin` and `commit`. That costs four round trips for each
    /// where one does, and planning each time; leave it out for a pooler in session mode, and for a direct
    /// connection. The engine keeps few connections, so going past the pooler is faster where it is allowed.
    ///
    /// Nobody can listen through such a pooler: give the server's own address as [`listen_url`](Self::listen_url), or
    /// work from other nodes is found by polling, within [`max_poll_interval`](Self::max_poll_interval).
    ///
    /// What a step does with the pool is its own affair: sqlx names statements unless told `persistent(false)`, and
    /// asks for `extra_float_digits`, which PgBouncer must be told to ignore, or the pool's options not to send.
    #[cfg(feature = "postgres")]
    pub fn transaction_pooler(mut self, through: bool) -> Self {
        self.source.set_transaction_pooler(through);
        self
    }

    /// When commits are safe from a power loss; [`Synchronous::Full`](crate::Synchronous::Full), at once, by default. For SQLite.
    #[cfg(feature = "sqlite")]
    pub fn synchronous(mut self, synchronous: crate::Synchronous) -> Self {
        self.source.set_synchronous(synchronous);
        self
    }

    /// How long a worker may be silent before its claims are taken back; 30 s by default.
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.options.lease_ttl = ttl;
        self
    }

    /// How often a worker shows that it is alive; 5 s by default, a third of `lease_ttl` at most.
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.options.heartbeat = every;
        self
    }

    /// How soon an idle queue looks for work that nobody told it of; 1 s by default.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = interval;
        self
    }

    /// How rarely a queue that stays idle looks; 5 s by default.
    pub fn max_poll_interval(mut self, interval: Duration) -> Self {
        self.options.max_poll_interval = interval;
        self
    }

    /// How nodes tell each other of work; [`Poke::Postgres`] by default, on SQLite [`Poke::Local`].
    pub fn poke(mut self, poke: Poke) -> Self {
        self.options.poke = Some(poke);
        self
    }

    /// How often to look for workers that are gone; 5 s by default.
    pub fn reaper(mut self, every: Duration) -> Self {
        self.options.reaper = Some(every);
        self
    }

    /// Leaves the looking for workers that are gone to other nodes.
    pub fn without_reaper(mut self) -> Self {
        self.options.reaper = None;
        self
    }

    /// How ended instances are deleted; after 24 hours by default.
    pub fn gc(mut self, gc: Gc) -> Self {
        self.options.gc = Some(gc);
        self
    }

    /// Leaves the deleting of ended instances to other nodes.
    pub fn without_gc(mut self) -> Self {
        self.options.gc = None;
        self
    }

    /// How many rows a queue may claim ahead at most; 1,000 by default. How many it does follows the duration
    /// of its steps.
    pub fn max_prefetch(mut self, rows: u32) -> Self {
        self.options.max_prefetch = rows;
        self
    }

    /// How long a shutdown waits for running steps; 5 s by default.
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.options.drain_timeout = limit;
        self
    }

    /// How many bytes of JSON a state or an output may take; 1 MiB by default.
    pub fn payload_limit(mut self, bytes: usize) -> Self {
        self.options.payload_limit = bytes;
        self
    }

    /// How many crashes of its process a step without a retry policy may cause; 20 by default.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.options.max_crashes = crashes;
        self
    }

    /// Starts the engine.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for an option that cannot work, [`Error::AlreadyStarted`] for a name that is taken,
    /// [`Error::DuplicateMachine`], [`Error::MissingResource`], [`Error::Schema`] for a database that is not
    /// migrated or not for this binary, and [`Error::Store`] when the database cannot be reached.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn start(self) -> Result<Engine, Error> {
        let Prepared { core, outcomes, orders, keyed_orders, told, asked, mut loops } =
            self.prepare().await?;
        loops.spawn_committer(flusher::run(Arc::clone(&core), outcomes));
        loops.spawn(inserter::run(Arc::clone(&core), orders));
        loops.spawn(keyed::run(Arc::clone(&core), keyed_orders));
        loops.spawn(results::look(Arc::clone(&core), asked));
        loops.spawn(kin::run(Arc::clone(&core)));
        if core.options.poke == Some(Poke::Postgres) {
            loops.spawn(poke::notify(Arc::clone(&core), told));
            loops.spawn(poke::listen(Arc::clone(&core)));
        }
        if core.fires_due_rows() {
            loops.spawn(timer::run(Arc::clone(&core)));
        }
        if let Some(every) = core.options.reaper {
            loops.spawn(reaper::run(Arc::clone(&core), every));
        }
        if let Some(gc) = core.options.gc {
            loops.spawn(gc::run(Arc::clone(&core), gc));
        }
        if core.store.has_leases() || !core.queues.is_empty() {
            loops.spawn(reaper::take_back(Arc::clone(&core)));
        }
        for queue in &core.queues {
            loops.spawn_scheduler(scheduler::run(Arc::clone(&core), Arc::clone(queue)));
        }
        Engine::begin(core, loops)
    }

    /// Starts an engine that runs a step only when told, one at a time.
    pub(crate) async fn start_inline(mut self) -> Result<(Engine, Inline), Error> {
        let declared: Vec<_> = self.all_entries()?.iter().map(|entry| entry.queue.to_owned()).collect();
        if std::mem::take(&mut self.default_queues) {
            self.options.queues.clear();
        }
        self.options.queues.extend(declared.into_iter().map(|queue| (queue, 1)));
        self.options.poke = Some(Poke::Local);
        let Prepared { core, outcomes, orders, keyed_orders, asked, mut loops, .. } = self.prepare().await?;
        loops.spawn(inserter::run(Arc::clone(&core), orders));
        loops.spawn(keyed::run(Arc::clone(&core), keyed_orders));
        loops.spawn(results::look(Arc::clone(&core), asked));
        loops.spawn(kin::run(Arc::clone(&core)));
        let inline = Inline::new(Arc::clone(&core), Committer::new(Arc::clone(&core), outcomes));
        Ok((Engine::without_heartbeat(core, loops), inline))
    }

    /// Checks the options, opens the store, and makes everything but the loops.
    async fn prepare(self) -> Result<Prepared, Error> {
        self.options.validate()?;
        let entries = self.all_entries()?;
        let (place, source) = (self.source.place(), self.source);
        let store = source.open()?;
        let name = names::take(&self.options.name)?;
        store
            .check()
            .await
            .map_err(Error::store("reading the schema's version"))?
            .map_err(|problem| Error::Schema { schema: place, problem })?;
        let mut options = self.options;
        source::adapt(&mut options, &*store)?;
        let tenure = if options.queues.is_empty() {
            Tenure::unlimited()
        } else {
            let taken = store.run_queues(&options.node).await;
            taken
                .map_err(Error::store("taking the right to run queues"))?
                .map_err(|problem| Error::QueuesTaken { problem })?
        };
        let registry = Registry::new(&*store, entries, &self.resources).await?;
        let lease = registry.enlist(&*store, &options).await.map_err(Error::store("registering a worker"))?;
        let (flusher, outcomes) = Flusher::new();
        let (inserter, orders) = Inserter::new();
        let (keyed, keyed_orders) = Keyed::new();
        let (pokes, told) = Pokes::new(options.poke == Some(Poke::Postgres));
        let (questions, asked) = mpsc::unbounded_channel();
        let scope = StepScope {
            resources: self.resources,
            payload_limit: options.payload_limit,
            store: Some(Arc::clone(&store)),
            given_children: Vec::new(),
            done_policy: options.done_policy(),
        };
        let queues = options
            .queues
            .iter()
            .map(|(name, concurrency)| Queue::new(name, *concurrency, options.max_prefetch));
        let core = Arc::new(Core {
            registry,
            scope: Arc::new(scope),
            worker: Worker::new(lease),
            queues: queues.collect(),
            flusher,
            inserter,
            keyed,
            timer: Timer::default(),
            pokes,
            results: Results::default(),
            questions,
            events: Events::new(),
            solo: Solo::default(),
            kin: Kin::default(),
            stopping: watch::Sender::new(false),
            store,
            options,
        });
        Ok(Prepared { core, outcomes, orders, keyed_orders, told, asked, loops: Loops::new(name, tenure) })
    }

    /// The machines that were registered, and the jobs that were named or discovered.
    fn all_entries(&self) -> Result<Vec<MachineEntry>, Error> {
        let mut entries = self.entries.clone();
        match &self.jobs {
            Some(jobs) => entries.extend(jobs.iter().cloned()),
            None => {
                let discovered = inventory::iter::<Discovered>.into_iter().map(|Discovered(entry)| entry());
                // One that was registered by hand, with its own steps, takes precedence.
                entries.extend(discovered.filter(|found| {
                    !self
                        .entries
                        .iter()
                        .any(|entry| (entry.name, entry.version) == (found.name, found.version))
                }));
            }
        }
        registry::refuse_duplicates(&entries)?;
        for entry in entries.iter().filter(|entry| self.options.queues.contains_key(entry.queue)) {
            if let Some(missing) = entry.resources.iter().find(|resource| !resource.is_in(&self.resources)) {
                return Err(Error::MissingResource { job: entry.name.into(), resource: (missing.name)() });
            }
        }
        Ok(entries)
    }
}
