-- oldest-code: 1
--
-- Instances, the machines they belong to and the workers that run them.
--
-- No foreign keys: they would lock rows of `machines` and `workers` on the hot path, and what they would forbid
-- (a row executing under a worker that is gone) is a state that the reaper mends.

create type {schema}.status as enum (
    'scheduled', 'ready', 'blocked', 'executing', 'waiting', 'joining', 'done', 'failed', 'cancelled'
);

-- For how long a correlation key is taken: while its instance lives, while its row exists, or never.
create type {schema}.key_scope as enum ('live', 'row', 'address');

-- A (name, version) pair, so that instances carry four bytes instead.
create table {schema}.machines (
    id int generated always as identity primary key,
    version bigint not null,
    first_seen timestamptz not null default now(),
    last_seen timestamptz not null default now(),
    -- Since when no live worker runs it, and whether its rows are out of the way of claims.
    unserved_since timestamptz,
    set_aside bool not null default false,
    name text not null,
    unique (name, version)
);

-- Holders of claims. The lease is the worker's and not the row's: one small update per heartbeat, however much
-- is in flight. No index but the primary key and room on each page: every heartbeat stays a heap-only update.
create table {schema}.workers (
    id bigint generated always as identity primary key,
    beat bigint not null default 0,
    started_at timestamptz not null default now(),
    beaten_at timestamptz not null default now(),
    dead bool not null default false,
    machines int[] not null default '{}',
    engine text not null,
    node text not null
) with (fillfactor = 50);

-- Columns are ordered for the log. An update writes what lies between the first and the last byte that differ, so
-- what never changes comes first, what changes with every claim and outcome stands together, and what mostly stays
-- comes last. No column needs padding.
create table {schema}.instances (
    id uuid not null primary key,
    created_at timestamptz not null default now(),
    eligible_at timestamptz not null default now(),
    machine_id int not null,
    attempt int not null default 0,
    failures int not null default 0,
    crashes int not null default 0,
    claimed_by bigint,
    claim bigint,
    revision bigint not null default 0,
    finished_at timestamptz,
    status {schema}.status not null,
    priority smallint not null default 0,
    watched bool not null default false,
    -- Signals that were not consumed yet, and whether somebody asked to cancel it while it executed: with either, an
    -- outcome takes the long way.
    inbox int not null default 0,
    -- Whether keys of signals are kept until it ends.
    keeps_keys bool not null default false,
    cancel_requested bool not null default false,
    -- Whether the wait that woke it timed out.
    timed_out bool not null default false,
    -- Whether its parent was told of its end, and whether its live children are still to be cancelled.
    joined bool not null default false,
    cascades bool not null default false,
    -- A parent's fan-out whose children its step may read, and how many of them have not ended; in a child, the
    -- fan-out that it belongs to.
    round bigint,
    children_pending int,
    -- The last signal that the step had been handed when it went to wait.
    seen bigint,
    parent_id uuid,
    parent_round bigint,
    awaits text[],
    -- The name of its machine, where it has a key: keys are unique among all versions of a machine.
    family text,
    correlation_key text,
    key_scope {schema}.key_scope,
    output json,
    error text,
    step text not null,
    queue text not null,
    state json not null,
    trace_context text
) with (
    -- Dead versions pile up with the rows that passed through, not with those that stay: a share of the table
    -- (the default is a fifth) would let the indexes of a large table rot at their head, where claims read.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05,
    -- Cutting off empty pages takes a lock that stops everybody, and a table that is about to fill again keeps
    -- them anyway. See below, too.
    vacuum_truncate = false,
    -- For the insert below; set to its real value after it.
    fillfactor = 10
);

-- The planner thinks that a table of a few pages is read fastest from end to end, and a connection keeps such a
-- plan for its prepared statements while the table grows to hundreds of thousands of rows, until the next
-- analyze. So this table never is that small: it is born with 128 empty pages (1 MiB), which vacuum does not cut off.
insert into {schema}.instances (id, machine_id, status, step, queue, state, error)
select ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 0, 'cancelled', '', '', '0', repeat('-', 500)
from generate_series(1, 128) n;

delete from {schema}.instances;

-- Every instance is rewritten at least twice, and while a page has room the new version stays on it: its log record is
-- then only the difference, and no second record is needed to hold the old page's row meanwhile. A claim takes whole
-- pages, and pruning clears them before the outcomes come, so half is enough. Per one-step instance that is kept,
-- claim and outcome write 740 bytes of log instead of 920 (PostgreSQL 15, batches of 500).
alter table {schema}.instances set (fillfactor = 50);

-- Claims read this in order. The machine comes last: rows older or newer than what a node can run are passed over
-- in the index.
create index instances_pick on {schema}.instances (queue, priority, eligible_at, machine_id)
    where status = 'ready';

-- Delayed rows, and waits that time out, in the order in which they are due. A wait without a timeout is due at
-- infinity and not in here.
create index instances_due on {schema}.instances (eligible_at)
    where status in ('scheduled', 'waiting') and isfinite(eligible_at);

-- What a worker holds, and which workers hold something.
create index instances_claims on {schema}.instances (claimed_by)
    where status = 'executing';

-- Rows that no live worker can run, by machine.
create index instances_blocked on {schema}.instances (machine_id)
    where status = 'blocked';

-- What a worker holds and is asked to cancel.
create index instances_cancel on {schema}.instances (claimed_by)
    where status = 'executing' and cancel_requested;

-- One instance of a key. `address` keys are not unique.
create unique index instances_key on {schema}.instances (family, correlation_key)
    where key_scope = 'row' or key_scope = 'live' and status not in ('done', 'failed', 'cancelled');

-- Instances by their key.
create index instances_address on {schema}.instances (family, correlation_key)
    where correlation_key is not null;

-- The children of a fan-out.
create index instances_children on {schema}.instances (parent_id, parent_round, id)
    where parent_id is not null;

-- Children that have not ended.
create index instances_live_children on {schema}.instances (parent_id)
    where parent_id is not null and status not in ('done', 'failed', 'cancelled');

-- Children whose end their parent has not been told.
create index instances_unjoined on {schema}.instances (parent_id)
    where parent_id is not null and not joined and status in ('done', 'failed', 'cancelled');

-- Instances whose children are still to be cancelled.
create index instances_cascades on {schema}.instances (id)
    where cascades;

-- Retention.
create index instances_sweep on {schema}.instances (finished_at)
    where status in ('done', 'failed', 'cancelled');

-- What instances were sent and have not consumed. The numbers of one instance's signals are in the order of their commits:
-- who sends one locks the instance first. A consumed signal with a key stays without its payload until its instance
-- ends, so that the key goes on telling redeliveries.
create table {schema}.signals (
    seq bigint generated always as identity primary key,
    instance_id uuid not null,
    sent_at timestamptz not null default now(),
    consumed bool not null default false,
    name text not null,
    dedup_key text,
    payload json
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    vacuum_truncate = false,
    fillfactor = 10
);

-- Never small, as above.
insert into {schema}.signals (instance_id, name, payload)
select '00000000-0000-0000-0000-000000000000', repeat('-', 500), 'null'
from generate_series(1, 128);

delete from {schema}.signals;

alter table {schema}.signals set (fillfactor = 100);

create index signals_inbox on {schema}.signals (instance_id, seq);

create unique index signals_dedup on {schema}.signals (instance_id, dedup_key) where dedup_key is not null;

-- For people: names instead of numbers.
create view {schema}.overview as
select
    i.id,
    m.name as machine,
    m.version,
    i.step,
    i.status,
    i.queue,
    i.priority,
    i.revision,
    i.attempt,
    i.failures,
    i.crashes,
    i.claimed_by as worker,
    w.node,
    i.awaits,
    i.inbox,
    i.correlation_key,
    i.parent_id,
    i.children_pending,
    i.created_at,
    i.eligible_at,
    i.finished_at,
    i.state,
    i.output,
    i.error
from {schema}.instances i
left join {schema}.machines m on m.id = i.machine_id
left join {schema}.workers w on w.id = i.claimed_by;
