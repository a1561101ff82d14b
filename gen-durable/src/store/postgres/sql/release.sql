-- Hands rows back to their queue, uncharged and at their old place, where the worker still owns them.
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
)
update {schema}.instances i
set status = 'ready'
from locked
where i.ctid = locked.address
    and locked.status = 'executing'
    and locked.claimed_by = $1
    and locked.claim = my_claim
    and locked.revision = my_revision
