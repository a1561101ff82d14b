-- oldest-code: 1
--
-- Instances, the machines they belong to and the workers that run them.
--
-- SQLite has no schemas, so the names begin with `gen_durable_`: the file may hold tables of the application, too.
-- Instants are microseconds since 1970 in UTC, by the clock of the process that writes them.

-- A (name, version) pair, so that instances carry a small number instead.
create table gen_durable_machines (
    id integer primary key,
    name text not null,
    version integer not null,
    first_seen integer not null,
    last_seen integer not null,
    -- Whether its rows are out of the way of claims, as nobody runs it.
    set_aside integer not null default 0 check (set_aside in (0, 1)),
    unique (name, version)
) strict;

-- Holders of claims. `autoincrement`: an id is never used again.
create table gen_durable_workers (
    id integer primary key autoincrement,
    beat integer not null default 0,
    started_at integer not null,
    beaten_at integer not null,
    dead integer not null default 0 check (dead in (0, 1)),
    engine text not null,
    node text not null,
    machines text not null default '[]' check (json_valid(machines))
) strict;

-- Texts come last: numbers before them are read without touching the overflow pages of a large state. The checks
-- refuse what PostgreSQL's types refuse.
create table gen_durable_instances (
    id blob not null primary key check (length(id) = 16),
    eligible_at integer not null,
    created_at integer not null,
    finished_at integer,
    claimed_by integer,
    claim integer,
    revision integer not null default 0,
    machine_id integer not null,
    status text not null check (
        status in (
            'scheduled', 'ready', 'blocked', 'executing', 'waiting', 'joining', 'done', 'failed', 'cancelled'
        )
    ),
    attempt integer not null default 0,
    failures integer not null default 0,
    crashes integer not null default 0,
    priority integer not null default 0,
    watched integer not null default 0 check (watched in (0, 1)),
    step text not null,
    queue text not null,
    trace_context text,
    error text check (instr(error, char(0)) = 0),
    output text check (json_valid(output)),
    state text not null check (json_valid(state))
) strict;

-- Claims read this in order. The machine comes last: rows that an engine cannot run are passed over in the index.
create index gen_durable_instances_pick on gen_durable_instances (queue, priority, eligible_at, machine_id)
    where status = 'ready';

-- Promotion of delayed rows reads this in order.
create index gen_durable_instances_due on gen_durable_instances (eligible_at)
    where status = 'scheduled';

-- What a worker holds, and which workers hold something.
create index gen_durable_instances_claims on gen_durable_instances (claimed_by)
    where status = 'executing';

-- Rows that nobody can run, by machine.
create index gen_durable_instances_blocked on gen_durable_instances (machine_id)
    where status = 'blocked';

-- Retention.
create index gen_durable_instances_sweep on gen_durable_instances (finished_at)
    where finished_at is not null;

-- For people: names instead of numbers, instants and ids as text.
create view gen_durable_overview as
select
    lower(
        format(
            '%s-%s-%s-%s-%s',
            substr(hex(i.id), 1, 8),
            substr(hex(i.id), 9, 4),
            substr(hex(i.id), 13, 4),
            substr(hex(i.id), 17, 4),
            substr(hex(i.id), 21)
        )
    ) as id,
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
    strftime('%Y-%m-%d %H:%M:%f', i.created_at / 1000000.0, 'unixepoch') as created_at,
    strftime('%Y-%m-%d %H:%M:%f', i.eligible_at / 1000000.0, 'unixepoch') as eligible_at,
    strftime('%Y-%m-%d %H:%M:%f', i.finished_at / 1000000.0, 'unixepoch') as finished_at,
    i.state,
    i.output,
    i.error
from gen_durable_instances i
left join gen_durable_machines m on m.id = i.machine_id
left join gen_durable_workers w on w.id = i.claimed_by;
