-- oldest-code: 1
--
-- Instances, the machines they belong to, the workers that run them and the signals they are sent.
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
    -- Signals that were not consumed yet, and whether somebody asked to cancel it while it executed: with either, an
    -- outcome takes the long way.
    inbox integer not null default 0,
    cancel_requested integer not null default 0 check (cancel_requested in (0, 1)),
    -- Whether the wait that woke it timed out.
    timed_out integer not null default 0 check (timed_out in (0, 1)),
    -- Whether its parent was told of its end, and whether its live children are still to be cancelled.
    joined integer not null default 0 check (joined in (0, 1)),
    cascades integer not null default 0 check (cascades in (0, 1)),
    -- A parent's fan-out whose children its step may read, and how many of them have not ended; in a child, the
    -- fan-out that it belongs to.
    round integer,
    children_pending integer,
    -- The last signal that the step had been handed when it went to wait.
    seen integer,
    parent_id blob check (length(parent_id) = 16),
    parent_round integer,
    -- Names of signals: an array.
    awaits text check (json_type(awaits) = 'array'),
    -- The name of its machine, where it has a key: keys are unique among all versions of a machine.
    family text,
    correlation_key text check (instr(correlation_key, char(0)) = 0),
    -- For how long the key is taken: while its instance lives, while its row exists, or never.
    key_scope text check (key_scope in ('live', 'row', 'address')),
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

-- Delayed rows, and waits that time out, in the order in which they are due. A wait without a timeout is due at the
-- end of time and not in here.
create index gen_durable_instances_due on gen_durable_instances (eligible_at)
    where status in ('scheduled', 'waiting') and eligible_at < 9223372036854775807;

-- What a worker holds, and which workers hold something.
create index gen_durable_instances_claims on gen_durable_instances (claimed_by)
    where status = 'executing';

-- Rows that nobody can run, by machine.
create index gen_durable_instances_blocked on gen_durable_instances (machine_id)
    where status = 'blocked';

-- What a worker holds and is asked to cancel.
create index gen_durable_instances_cancel on gen_durable_instances (claimed_by)
    where status = 'executing' and cancel_requested;

-- One instance of a key. `address` keys are not unique.
create unique index gen_durable_instances_key on gen_durable_instances (family, correlation_key)
    where key_scope = 'row' or key_scope = 'live' and status not in ('done', 'failed', 'cancelled');

-- Instances by their key.
create index gen_durable_instances_address on gen_durable_instances (family, correlation_key)
    where correlation_key is not null;

-- The children of a fan-out.
create index gen_durable_instances_children on gen_durable_instances (parent_id, parent_round, id)
    where parent_id is not null;

-- Children that have not ended: with 100,000 of them, cancelling some need not pass over those that were cancelled
-- before.
create index gen_durable_instances_live_children on gen_durable_instances (parent_id)
    where parent_id is not null and status not in ('done', 'failed', 'cancelled');

-- Children whose end their parent has not been told.
create index gen_durable_instances_unjoined on gen_durable_instances (parent_id)
    where parent_id is not null and not joined and status in ('done', 'failed', 'cancelled');

-- Instances whose children are still to be cancelled.
create index gen_durable_instances_cascades on gen_durable_instances (id)
    where cascades;

-- Retention.
create index gen_durable_instances_sweep on gen_durable_instances (finished_at)
    where finished_at is not null;

-- What instances were sent and have not consumed. A number is never used again, so that those of one instance's signals
-- rise. A consumed signal with a key stays without its payload until its instance ends, so that the key goes on telling
-- redeliveries. An instance that has ended has no signals.
create table gen_durable_signals (
    seq integer primary key autoincrement,
    instance_id blob not null check (length(instance_id) = 16),
    sent_at integer not null,
    consumed integer not null default 0 check (consumed in (0, 1)),
    name text not null check (instr(name, char(0)) = 0),
    dedup_key text check (instr(dedup_key, char(0)) = 0),
    payload text check (json_valid(payload)),
    -- Whoever deletes an instance's signals finds each of them through one of the indexes below.
    check (not consumed or dedup_key is not null and payload is null)
) strict;

create index gen_durable_signals_inbox on gen_durable_signals (instance_id, seq)
    where not consumed;

create unique index gen_durable_signals_dedup on gen_durable_signals (instance_id, dedup_key)
    where dedup_key is not null;

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
    i.awaits,
    i.inbox,
    i.correlation_key,
    case
        when i.parent_id is not null then lower(
            format(
                '%s-%s-%s-%s-%s',
                substr(hex(i.parent_id), 1, 8),
                substr(hex(i.parent_id), 9, 4),
                substr(hex(i.parent_id), 13, 4),
                substr(hex(i.parent_id), 17, 4),
                substr(hex(i.parent_id), 21)
            )
        )
    end as parent_id,
    i.children_pending,
    strftime('%Y-%m-%d %H:%M:%f', i.created_at / 1000000.0, 'unixepoch') as created_at,
    strftime('%Y-%m-%d %H:%M:%f', nullif(i.eligible_at, 9223372036854775807) / 1000000.0, 'unixepoch') as eligible_at,
    strftime('%Y-%m-%d %H:%M:%f', i.finished_at / 1000000.0, 'unixepoch') as finished_at,
    i.state,
    i.output,
    i.error
from gen_durable_instances i
left join gen_durable_machines m on m.id = i.machine_id
left join gen_durable_workers w on w.id = i.claimed_by;
