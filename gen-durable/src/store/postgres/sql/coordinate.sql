-- Commits a batch of outcomes that touch more than their rows, where the worker still owns them: of instances that were
-- sent signals, wait for some, have children, or are to be cancelled.
--
-- $1 worker, $2 whether done rows are deleted, $3 signals that are consumed, then parallel arrays sorted by id: $4 id,
-- $5 claim, $6 revision, $7 kind (n)ext, (a)head, (r)etry, (d)one, (s)top, (c)ancel, (w)ait or (f)an-out, $8 step,
-- $9 state or output, $10 error, $11 delay, or time until a wait is over, in microseconds, $12 whether the start counts,
-- $13 names of the signals to wait for, as JSON, $14 the last signal that the step has seen, $15 how many children,
-- $16 whether they are cancelled, $17 how many signals it consumes
--
-- Locks and ownership as in `flush.sql`. Signals need no lock: who sends one locks the row first.
--
-- Closes: a signal against a wait. Who sends a signal always writes the row. If that committed after this statement's
-- snapshot, the row's version that is locked here is not visible to the update by address: the outcome is missed, and
-- the next try sees the signal. If this commits first, the sender finds the row waiting, and wakes it.
--
-- A wait is over at once when the inbox holds a signal that it names and that the step has not seen as awaited.
--
-- A claim is kept only if no signal is left: a step that runs ahead is handed none, and a claim hands over all.
--
-- Plan: driven by id, and from there by address; `wanted = $1` as in `claim.sql`.
with locked as materialized (
    select
        b.id, b.claim as my_claim, b.revision as my_revision, b.kind, b.step, b.payload, b.error, b.delay, b.counted,
        b.seen as my_seen, b.children, b.cascade, b.consumed,
        case
            when b.awaits is not null then array(select pg_catalog.json_array_elements_text(b.awaits::json))
        end as names,
        found.*
    from unnest(
        $4::uuid[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[],
        $12::bool[], $13::text[], $14::bigint[], $15::int[], $16::bool[], $17::int[]
    ) as b(
        id, claim, revision, kind, step, payload, error, delay, counted, awaits, seen, children, cascade, consumed
    )
    cross join lateral (
        select
            i.ctid as address, i.status, i.claimed_by, i.claim, i.revision, i.watched, i.awaits, i.cancel_requested,
            i.parent_id, i.key_scope, i.cascades
        from {schema}.instances i
        where i.id = b.id
        for no key update skip locked
    ) found
),
owned as materialized (
    select
        l.*,
        case when l.cancel_requested and l.kind not in ('d', 's') then 'c' else l.kind end as turn,
        $2::bool and l.kind = 'd' and not l.watched and not l.cascades and l.parent_id is null
            and l.key_scope is distinct from 'row' as removed,
        $1::bigint as wanted
    from locked l
    where l.status = 'executing' and l.claimed_by = $1 and l.claim = l.my_claim and l.revision = l.my_revision
),
letters as materialized (
    select found.address, found.keeps_key and o.turn in ('n', 'a', 'w', 'f') as keeps_key, o.wanted
    from owned o
    cross join lateral (
        select s.ctid as address, s.dedup_key is not null as keeps_key
        from {schema}.signals s
        where s.instance_id = o.id
            and (o.turn in ('d', 's', 'c') or o.turn in ('n', 'a', 'w', 'f') and s.seq = any($3::bigint[]))
        offset 0
    ) found
),
spent as (
    update {schema}.signals s
    set consumed = true, payload = null
    from letters l
    where s.ctid = l.address and l.keeps_key and l.wanted = $1
),
cleared as (
    delete from {schema}.signals s
    using letters l
    where s.ctid = l.address and not l.keeps_key and l.wanted = $1
),
decided as materialized (
    select
        o.*,
        o.turn = 'w' and exists (
            select
            from {schema}.signals s
            where s.instance_id = o.id
                and not s.consumed
                and not s.seq = any($3::bigint[])
                and s.name = any(o.names)
                and not (s.seq <= o.my_seen and coalesce(s.name = any(o.awaits), false))
        ) as has_come
    from owned o
),
removed as (
    delete from {schema}.instances i
    using decided d
    where i.ctid = d.address and d.removed and d.wanted = $1
    returning i.id, false as watched, 'done' as status
),
written as (
    update {schema}.instances i
    set
        status = case
            when d.turn = 'd' then 'done'
            when d.turn = 's' then 'failed'
            when d.turn = 'c' then 'cancelled'
            when d.turn = 'a' and i.inbox = d.consumed then 'executing'
            when d.turn = 'w' and not d.has_come then 'waiting'
            when d.turn = 'f' and d.children > 0 then 'joining'
            when d.turn in ('n', 'r') and d.delay > 0 then 'scheduled'
            else 'ready'
        end::{schema}.status,
        revision = i.revision + 1,
        step = case when d.turn in ('n', 'a', 'w', 'f') then d.step else i.step end,
        state = case
            when d.turn in ('n', 'a', 'r', 'w', 'f') then coalesce(d.payload::json, i.state) else i.state
        end,
        output = case when d.turn = 'd' then d.payload::json end,
        error = d.error,
        attempt = case when d.turn in ('n', 'a', 'w', 'f') then 0 when d.turn = 'r' then i.attempt + 1 else i.attempt end,
        failures = case
            when d.turn in ('n', 'a', 'w', 'f') then 0
            when d.turn = 'r' then i.failures + d.counted::int
            else i.failures
        end,
        crashes = case when d.turn in ('n', 'a', 'w', 'f') then 0 else i.crashes end,
        eligible_at = case
            when d.turn = 'w' and not d.has_come
                then coalesce(now() + d.delay * interval '1 microsecond', 'infinity'::timestamptz)
            when d.turn in ('n', 'r') then now() + d.delay * interval '1 microsecond'
            when d.turn in ('w', 'f') or d.turn = 'a' and i.inbox > d.consumed then now()
            else i.eligible_at
        end,
        finished_at = case when d.turn in ('d', 's', 'c') then now() end,
        inbox = case
            when d.turn in ('d', 's', 'c') then 0
            when d.turn = 'r' then i.inbox
            else i.inbox - d.consumed
        end,
        keeps_keys = i.keeps_keys and d.turn not in ('d', 's', 'c'),
        awaits = case when d.turn = 'w' then d.names when d.turn in ('n', 'a', 'f') then null else i.awaits end,
        seen = case when d.turn = 'w' then d.my_seen when d.turn in ('n', 'a', 'f') then null else i.seen end,
        timed_out = i.timed_out and d.turn not in ('n', 'a', 'w', 'f'),
        round = case when d.turn = 'f' then i.revision + 1 when d.turn in ('n', 'a', 'w') then null else i.round end,
        children_pending = case when d.turn = 'f' and d.children > 0 then d.children end,
        cascades = i.cascades or d.turn = 's' and d.cascade
    from decided d
    where i.ctid = d.address and not d.removed and d.wanted = $1
    returning i.id, i.watched, i.status::text
)
select id, watched, status from written
union all
select id, watched, status from removed
