-- Commits a batch of outcomes that touch nothing but their rows, where the worker still owns them.
--
-- $1 worker, $2 whether done rows are deleted, then parallel arrays sorted by id: $3 id, $4 claim, $5 revision,
-- $6 kind (n)ext, (a)head: a next whose claim is kept, (r)etry, (d)one or (s)top, $7 step, $8 state or output,
-- $9 error, $10 delay in microseconds, $11 whether the start counts
--
-- Locks: by primary key in the order of the batch, `skip locked`: waits for nobody. What somebody else holds, or
-- changed since this statement's snapshot, is missing from the result; `settle.sql` says why.
--
-- Closes: an outcome of a worker that lost its row. Ownership is judged on the locked version, and all
-- of claimed_by, claim and revision must match. Retrying is safe: a committed outcome raised the revision.
--
-- A row that was sent a signal or asked to be cancelled meanwhile is missing from the result, too: `settle.sql` tells,
-- and `coordinate.sql` follows.
--
-- A next whose claim is kept changes no indexed column, `eligible_at` neither: no index is written.
--
-- Plan: driven by id. Ownership is judged outside of the locking query, because `claimed_by` in there would
-- offer the planner the index on it: then every row of a batch reads all rows that the worker holds.
with locked as materialized (
    select
        b.claim as my_claim, b.revision as my_revision, b.kind, b.step, b.payload, b.error, b.delay, b.counted,
        found.*,
        $2::bool and b.kind = 'd' and not found.watched and found.parent_id is null
            and found.key_scope is distinct from 'row' as removed
    from unnest(
        $3::uuid[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[],
        $11::bool[]
    ) as b(id, claim, revision, kind, step, payload, error, delay, counted)
    cross join lateral (
        select
            i.ctid as address, i.status, i.claimed_by, i.claim, i.revision, i.watched, i.inbox, i.cancel_requested,
            i.keeps_keys, i.parent_id, i.key_scope
        from {schema}.instances i
        where i.id = b.id
        for no key update skip locked
    ) found
),
owned as (
    select * from locked
    where status = 'executing' and claimed_by = $1 and claim = my_claim and revision = my_revision
        and inbox = 0 and not cancel_requested and not keeps_keys
),
removed as (
    delete from {schema}.instances i
    using owned
    where i.ctid = owned.address and owned.removed
    returning i.id, false as watched, 'done' as status
),
written as (
    update {schema}.instances i
    set
        status = case
            when owned.kind = 'd' then 'done'
            when owned.kind = 's' then 'failed'
            when owned.kind = 'a' then 'executing'
            when owned.delay > 0 then 'scheduled'
            else 'ready'
        end::{schema}.status,
        revision = i.revision + 1,
        step = coalesce(owned.step, i.step),
        state = case when owned.kind in ('n', 'a', 'r') then coalesce(owned.payload::json, i.state) else i.state end,
        output = case when owned.kind = 'd' then owned.payload::json end,
        error = owned.error,
        attempt = case when owned.kind in ('n', 'a') then 0 when owned.kind = 'r' then i.attempt + 1 else i.attempt end,
        failures = case
            when owned.kind in ('n', 'a') then 0
            when owned.kind = 'r' then i.failures + owned.counted::int
            else i.failures
        end,
        crashes = case when owned.kind in ('n', 'a') then 0 else i.crashes end,
        eligible_at = case
            when owned.kind in ('n', 'r') then now() + owned.delay * interval '1 microsecond'
            else i.eligible_at
        end,
        finished_at = case when owned.kind in ('d', 's') then now() end
    from owned
    where i.ctid = owned.address and not owned.removed
    returning i.id, i.watched, i.status::text
)
select id, watched, status from written
union all
select id, watched, status from removed
