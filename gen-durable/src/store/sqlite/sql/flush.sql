-- Commits a batch of outcomes that touch nothing but their rows, where the worker still owns these.
--
-- ?1 worker, ?2 now, ?3 outcomes: arrays of id, claim, revision, kind (n)ext, (a)head: a next whose claim is kept,
-- (r)etry, (d)one or (s)top, step, state or output, error, delay in microseconds, whether the start counts
--
-- Closes: an outcome of a worker that lost its row. All of claimed_by, claim and revision must match. Retrying is
-- safe: a committed outcome raised the revision. And a signal or a wish to cancel that came while the step ran: such
-- rows, and all that have signals, have waited or have children, are left to `coordinate.sql`.
--
-- Plan: driven by id. The `+` keep the index on claimed_by out, through which every row of a batch would read all
-- rows that the worker holds.
with batch as materialized (
    select
        unhex(b.value ->> 0) as id,
        b.value ->> 1 as claim,
        b.value ->> 2 as revision,
        b.value ->> 3 as kind,
        b.value ->> 4 as step,
        b.value ->> 5 as payload,
        b.value ->> 6 as error,
        b.value ->> 7 as delay,
        b.value ->> 8 as counted
    from json_each(?3) b
)
update gen_durable_instances as i
set
    status = case
        when b.kind = 'd' then 'done'
        when b.kind = 's' then 'failed'
        when b.kind = 'a' then 'executing'
        when b.delay > 0 then 'scheduled'
        else 'ready'
    end,
    revision = i.revision + 1,
    step = coalesce(b.step, i.step),
    state = case when b.kind in ('n', 'a', 'r') then coalesce(b.payload, i.state) else i.state end,
    output = case when b.kind = 'd' then b.payload end,
    error = b.error,
    attempt = case when b.kind in ('n', 'a') then 0 when b.kind = 'r' then i.attempt + 1 else i.attempt end,
    failures = case
        when b.kind in ('n', 'a') then 0
        when b.kind = 'r' then i.failures + b.counted
        else i.failures
    end,
    crashes = case when b.kind in ('n', 'a') then 0 else i.crashes end,
    eligible_at = case when b.kind in ('n', 'a', 'r') then ?2 + b.delay else i.eligible_at end,
    finished_at = case when b.kind in ('d', 's') then ?2 end
from batch b
where i.id = b.id
    and +i.status = 'executing'
    and +i.claimed_by = ?1
    and i.claim = b.claim
    and i.revision = b.revision
    and i.inbox = 0
    and not i.cancel_requested
    and i.round is null
    and i.awaits is null
    and not (
        b.kind in ('d', 's')
        and exists (select 1 from gen_durable_signals s where s.instance_id = i.id and s.dedup_key is not null)
    )
returning id, status, watched
