-- Hands rows back to their queue, uncharged and at their old place, where the worker still owns them. Those that are
-- to be cancelled are.
--
-- $1 worker, then parallel arrays sorted by id: $2 id, $3 claim, $4 revision
--
-- Locks and plan as in `flush.sql`. A row that is locked by somebody else is left as it is.
with locked as materialized (
    select b.claim as my_claim, b.revision as my_revision, found.*
    from unnest($2::uuid[], $3::bigint[], $4::bigint[]) as b(id, claim, revision)
    cross join lateral (
        select i.ctid as address, i.status, i.claimed_by, i.claim, i.revision
        from {schema}.instances i
        where i.id = b.id
        for no key update skip locked
    ) found
),
released as (
    update {schema}.instances i
    set
        status = case when i.cancel_requested then 'cancelled' else 'ready' end::{schema}.status,
        finished_at = case when i.cancel_requested then now() end,
        inbox = case when i.cancel_requested then 0 else i.inbox end
    from locked
    where i.ctid = locked.address
        and locked.status = 'executing'
        and locked.claimed_by = $1
        and locked.claim = my_claim
        and locked.revision = my_revision
    returning i.id, i.cancel_requested, $1::bigint as wanted
),
letters as materialized (
    select found.address, r.wanted
    from released r
    cross join lateral (select s.ctid as address from {schema}.signals s where s.instance_id = r.id offset 0) found
    where r.cancel_requested
),
cleared as (
    delete from {schema}.signals s using letters where s.ctid = letters.address and letters.wanted = $1
)
select count(*) from released
