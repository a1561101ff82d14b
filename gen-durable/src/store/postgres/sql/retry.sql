-- Makes a failed instance ready again, in the step that failed, with its attempts forgotten.
--
-- $1 id
--
-- Locks: the row, then its parent if that was told of its end, `skip locked`.
--
-- Closes: running a failed child again against the join. A parent that still waits for others is given it back to wait
-- for, under its lock; one that has gone on is not touched.
with target as materialized (
    select i.id, i.status, i.parent_id, i.parent_round, i.joined
    from {schema}.instances i
    where i.id = $1
    for no key update skip locked
),
parent as materialized (
    select found.*
    from target t
    cross join lateral (
        select i.id, i.status, i.round
        from {schema}.instances i
        where i.id = t.parent_id and t.joined
        for no key update skip locked
    ) found
),
decided as materialized (
    select
        t.id, t.status, t.parent_id,
        p.id is not null or not t.joined or not exists (select from {schema}.instances i where i.id = t.parent_id)
            as is_free,
        coalesce(p.status = 'joining' and p.round = t.parent_round, false) as rejoins
    from target t
    left join parent p on true
),
again as (
    update {schema}.instances i
    set
        status = case
            when i.machine_id = any(array(select m.id from {schema}.machines m where m.set_aside)) then 'blocked'
            else 'ready'
        end::{schema}.status,
        attempt = 0,
        failures = 0,
        crashes = 0,
        error = null,
        finished_at = null,
        eligible_at = now(),
        cancel_requested = false,
        cascades = false,
        joined = i.joined and not d.rejoins
    from decided d
    where i.id = d.id and d.is_free and d.status = 'failed'
    returning i.queue
),
waiting as (
    update {schema}.instances i
    set children_pending = i.children_pending + 1
    from decided d
    where i.id = d.parent_id and d.is_free and d.rejoins and d.status = 'failed'
)
select d.status::text, again.queue, exists (select from {schema}.instances i where i.id = $1) as is_there
from (select) as one
left join decided d on true
left join again on true
