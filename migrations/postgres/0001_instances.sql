-- oldest-code: 1
--
-- Instances, the machines they belong to and the workers that run them.
--
-- No foreign keys: they would lock rows of `machines` and `workers` on the hot path, and what they would forbid
-- (a row executing under a worker that is gone) is a state that the reaper mends.

create type {schema}.status as enum (
    'scheduled', 'ready', 'blocked', 'executing', 'waiting', 'joining', 'done', 'failed', 'cancelled'
);

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

-- Promotion of delayed rows reads this in order.
create index instances_due on {schema}.instances (eligible_at)
    where status = 'scheduled';

-- What a worker holds, and which workers hold something.
create index instances_claims on {schema}.instances (claimed_by)
    where status = 'executing';

-- Rows that no live worker can run, by machine.
create index instances_blocked on {schema}.instances (machine_id)
    where status = 'blocked';

-- Retention.
create index instances_sweep on {schema}.instances (finished_at)
    where status in ('done', 'failed', 'cancelled');

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
    i.created_at,
    i.eligible_at,
    i.finished_at,
    i.state,
    i.output,
    i.error
from {schema}.instances i
left join {schema}.machines m on m.id = i.machine_id
left join {schema}.workers w on w.id = i.claimed_by;
