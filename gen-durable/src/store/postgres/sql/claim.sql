-- Takes the most urgent due rows of a queue for a worker.
--
-- $1 worker, $2 number of the claim, $3 queue, $4 machines this node can run, $5 limit, $6 crashes from which on
-- a row runs alone, $7 and $8 the lowest and the highest of $4, $9 whether such a row may be taken,
-- $10 microseconds before now that rows became eligible in, null for all
--
-- Locks: `for no key update skip locked` in index order; waits for nobody, so it cannot deadlock.
--
-- Commits asynchronously: a claim that a crash of the database loses is only a row that is ready again, and
-- log order makes a later flush durable only together with it. The setting ends with this transaction. The rest
-- reads from `relaxed`, so it is set before, and a dead worker takes nothing. A worker buried while this runs
-- may still get rows: they are reclaimed like all its others.
--
-- Plan: must walk `instances_pick` in order with any statistics and as a generic plan, where the limit is unknown.
-- * `array_position` cannot become an index condition (one over an array loses the order), and the planner thinks that
--   it lets nearly everything pass, so that sorting what it finds looks dearer than stopping early. It costs a
--   visit of each row that it passes over: 10 ms with 10,000 of them at the head of the queue (PostgreSQL 15).
-- * The range of machines is judged within the index, order kept: rows older or newer than all that this node runs,
--   as in a rolling deployment, cost less than 2 ms where the above costs 10.
-- * So is the time since the last look, when that matters (`looks.rs`): what an old snapshot keeps of rows that were
--   claimed before it costs a hundredth of a visit each.
-- * `wanted = $5` is always true and makes the planner expect so few rows that it looks them up by address instead of
--   joining them with the whole table.
with relaxed as materialized (
    select set_config('synchronous_commit', 'off', true) as setting
    from {schema}.workers w
    where w.id = $1 and not w.dead
),
picked as materialized (
    select found.address, found.crashes, $5::bigint as wanted
    from relaxed
    cross join lateral (
        select i.ctid as address, i.crashes
        from {schema}.instances i
        where relaxed.setting = 'off'
            and i.status = 'ready'
            and i.queue = $3
            and i.machine_id between $7 and $8
            and i.eligible_at >= coalesce(now() - $10::bigint * interval '1 microsecond', '-infinity')
            and pg_catalog.array_position($4::int[], i.machine_id) is not null
        order by i.queue, i.priority, i.eligible_at
        limit $5::bigint
        for no key update skip locked
    ) found
),
head as materialized (
    select picked.address, picked.crashes from picked limit 1
),
taken as (
    update {schema}.instances i
    set status = 'executing', claimed_by = $1, claim = $2
    from picked, head
    where i.ctid = picked.address
        and picked.wanted = $5
        and case when head.crashes >= $6 then $9 and picked.address = head.address else picked.crashes < $6 end
    returning i.*
),
suspects as (
    select exists (select from picked where picked.crashes >= $6) as there_are
)
select
    t.id, t.machine_id, t.step, t.state::text, t.revision, t.attempt, t.failures, t.crashes, t.trace_context,
    suspects.there_are, t.parent_id is not null, t.round, t.inbox, t.awaits, t.timed_out, t.seen,
    t.keeps_keys
from suspects
left join taken t on true
where t.id is not null or suspects.there_are
order by t.priority, t.eligible_at
