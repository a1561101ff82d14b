-- Commits a batch of outcomes that reach beyond their rows. Runs after `owned.sql`, in its transaction, for rows that the
-- worker owns; signals are consumed and children inserted before.
--
-- ?1 now, ?2 outcomes: arrays of id, kind (n)ext, (a)head: a next whose claim is kept, (r)etry, (w)ait, (f)an-out, (d)one,
-- (s)top or (c)ancel, step, state or output, error, delay in microseconds or null for a wait without a timeout, whether
-- the start counts, names of the signals to wait for, the last signal that the step had been handed, whether signals were
-- consumed, how many children, whether live children are cancelled
--
-- Closes: a signal that arrives while its target parks. Whoever comes second sees the other: a row parks only if nothing
-- that it waits for is in its inbox, but for what its step was handed as awaited.
--
-- Plan: driven by id; the inbox is looked at in its index, and counted only where it changed.
with batch as materialized (
    select
        unhex(b.value ->> 0) as id,
        b.value ->> 1 as kind,
        b.value ->> 2 as step,
        b.value ->> 3 as payload,
        b.value ->> 4 as error,
        b.value ->> 5 as delay,
        b.value ->> 6 as counted,
        b.value ->> 7 as awaits,
        b.value ->> 8 as seen,
        b.value ->> 9 as consumes,
        b.value ->> 10 as children,
        b.value ->> 11 as cascade,
        b.value ->> 1 in ('n', 'a', 'w', 'f') as progresses,
        b.value ->> 1 in ('d', 's', 'c') as ends
    from json_each(?2) b
),
decided as materialized (
    select
        b.*,
        i.rowid as place,
        b.kind = 'w' and not exists (
            select 1
            from gen_durable_signals s indexed by gen_durable_signals_inbox
            where s.instance_id = b.id
                and not s.consumed
                and s.name in (select a.value from json_each(b.awaits) a)
                and (s.seq > b.seen or s.name not in (select a.value from json_each(i.awaits) a))
        ) as parks,
        -- A step that runs ahead is handed no signals: where some are left, a claim hands them over.
        b.kind = 'a' and not exists (
            select 1
            from gen_durable_signals s indexed by gen_durable_signals_inbox
            where s.instance_id = b.id and not s.consumed
        ) as runs_ahead,
        case
            when i.machine_id in (select m.id from gen_durable_machines m where m.set_aside) then 'blocked'
            else 'ready'
        end as runnable
    from batch b
    cross join gen_durable_instances i on i.id = b.id
)
update gen_durable_instances as i
set
    status = case
        when b.kind = 'd' then 'done'
        when b.kind = 's' then 'failed'
        when b.kind = 'c' then 'cancelled'
        when b.runs_ahead then 'executing'
        when b.parks then 'waiting'
        when b.kind = 'f' and b.children > 0 then 'joining'
        when b.kind in ('n', 'r') and b.delay > 0 then 'scheduled'
        else b.runnable
    end,
    revision = i.revision + 1,
    step = coalesce(b.step, i.step),
    state = case when b.ends then i.state else coalesce(b.payload, i.state) end,
    output = case when b.kind = 'd' then b.payload end,
    error = b.error,
    attempt = case when b.progresses then 0 when b.kind = 'r' then i.attempt + 1 else i.attempt end,
    failures = case when b.progresses then 0 when b.kind = 'r' then i.failures + b.counted else i.failures end,
    crashes = case when b.progresses then 0 else i.crashes end,
    eligible_at = case
        when b.ends then i.eligible_at
        when b.parks then coalesce(?1 + b.delay, 9223372036854775807)
        when b.kind = 'w' then ?1
        else ?1 + b.delay
    end,
    finished_at = case when b.ends then ?1 end,
    inbox = case
        when b.ends then 0
        when b.consumes then (
            select count(*)
            from gen_durable_signals s indexed by gen_durable_signals_inbox
            where s.instance_id = b.id and not s.consumed
        )
        else i.inbox
    end,
    timed_out = case when b.progresses then 0 else i.timed_out end,
    awaits = case when b.progresses then b.awaits else i.awaits end,
    seen = case when b.progresses then b.seen else i.seen end,
    round = case when b.kind = 'f' then i.revision + 1 when b.progresses then null else i.round end,
    children_pending = case
        when b.kind = 'f' then b.children
        when b.progresses or b.ends then null
        else i.children_pending
    end,
    cascades = i.cascades or coalesce(b.cascade, 0),
    cancel_requested = i.cancel_requested and not b.ends
from decided b
where i.rowid = b.place
returning id, status, watched
