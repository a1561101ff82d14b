-- Sends signals.
--
-- Parallel arrays: $1 machine, $2 id of the target or null, $3 its correlation key instead, $4 name, $5 payload, $6 key
-- that makes sending it again a no-op
--
-- Locks: the targets in the order of their ids. The engine skips what somebody holds and tries again; a user's
-- transaction waits.
--
-- Closes: a signal against a wait, against the end, and against a timeout. Each is decided on the locked version of the
-- row, and the row is always written, also when it executes: an outcome that is about to be committed with an older
-- snapshot finds it changed.
--
-- Writes by id, not by address: the version that is locked may be newer than this statement's snapshot.
with batch as materialized (
    select
        b.place, b.machine, b.name, b.payload, b.dedup_key,
        case when b.id is null then keyed.ids[1] else b.id end as target,
        b.id is null and pg_catalog.cardinality(keyed.ids) > 1 as ambiguous
    from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[])
        with ordinality as b(machine, id, correlation_key, name, payload, dedup_key, place)
    cross join lateral (
        select array(
            select i.id
            from {schema}.instances i
            where i.family = b.machine
                and i.correlation_key = b.correlation_key
                and i.status not in ('done', 'failed', 'cancelled')
            limit 2
        ) as ids
    ) keyed
),
targets as materialized (
    select found.*
    from (select distinct b.target as id from batch b where b.target is not null and not b.ambiguous order by 1) t
    cross join lateral (
        select i.id, i.status, i.awaits, i.machine_id
        from {schema}.instances i
        where i.id = t.id
        for no key update skip locked
    ) found
),
letters as materialized (
    select
        b.place, b.name, b.payload, b.dedup_key, t.id,
        t.status = 'waiting' and b.name = any(t.awaits) as wakes,
        -- Of several with one key in this batch, the first counts.
        b.dedup_key is null or b.place = min(b.place) over (partition by t.id, b.dedup_key) as is_first
    from batch b
    join targets t on t.id = b.target
    where not b.ambiguous
        and t.status not in ('done', 'failed', 'cancelled')
        and exists (select from {schema}.machines m where m.id = t.machine_id and m.name = b.machine)
),
sent as (
    insert into {schema}.signals (instance_id, name, dedup_key, payload)
    select l.id, l.name, l.dedup_key, l.payload::json
    from letters l
    where l.is_first
    order by l.place
    on conflict (instance_id, dedup_key) where dedup_key is not null do nothing
    returning instance_id, name, dedup_key
),
fates as materialized (
    select
        l.place, l.id, l.wakes, l.dedup_key is not null as has_key,
        l.is_first and (
            l.dedup_key is null
            or exists (select from sent s where s.instance_id = l.id and s.dedup_key = l.dedup_key)
        ) as stored
    from letters l
),
received as (
    update {schema}.instances i
    set
        inbox = i.inbox + n.stored,
        keeps_keys = i.keeps_keys or n.with_key,
        status = case
            when not n.wakes then i.status
            when i.machine_id = any(array(select m.id from {schema}.machines m where m.set_aside)) then 'blocked'
            else 'ready'
        end::{schema}.status,
        eligible_at = case when n.wakes then now() else i.eligible_at end
    from (
        select f.id, count(*)::int as stored, bool_or(f.wakes) as wakes, bool_or(f.has_key) as with_key
        from fates f
        where f.stored
        group by f.id
    ) n
    where i.id = n.id
    returning i.id, i.queue, i.status
)
select
    b.place,
    case
        when b.ambiguous then 'ambiguous'
        when f.stored then 'stored'
        when f.place is not null then 'repeated'
        when b.target is not null
            and not exists (select from targets t where t.id = b.target)
            and exists (select from {schema}.instances i where i.id = b.target) then 'locked'
        else 'none'
    end as fate,
    case when f.stored and f.wakes then r.queue end as queue
from batch b
left join fates f on f.place = b.place
left join received r on r.id = f.id
order by b.place
