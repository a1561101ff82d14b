-- Says of rows that a flush missed what became of them: is an outcome still to be sent, already committed, or stale?
--
-- $1 worker, then parallel arrays: $2 id, $3 claim, $4 revision
--
-- A plain read, after the flush: it locks nothing. A row that is gone is not in the result.
select
    b.id,
    found.status = 'executing' and found.revision = b.revision as locked,
    found.watched,
    found.status::text,
    found.inbox > 0 or found.cancel_requested or found.keeps_keys as reaches_out
from unnest($2::uuid[], $3::bigint[], $4::bigint[]) as b(id, claim, revision)
cross join lateral (
    select i.status, i.claimed_by, i.claim, i.revision, i.watched, i.inbox, i.cancel_requested, i.keeps_keys
    from {schema}.instances i
    where i.id = b.id
    offset 0
) found
where found.claimed_by = $1
    and found.claim = b.claim
    and (found.status = 'executing' and found.revision = b.revision or found.revision = b.revision + 1)
