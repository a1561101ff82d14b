-- Cancels an instance. One that executes is only asked to end; one that has ended stays as it is.
--
-- $1 id, $2 whether its live children are cancelled, too
--
-- Locks: the row. The engine skips one that somebody holds and tries again; a user's transaction waits.
--
-- Closes: cancelling against an outcome. Whoever locks the row second sees the other's work; one that executes is
-- written, so that an outcome with an older snapshot finds it changed.
with target as materialized (
    select i.id, i.status, i.watched, i.status in ('done', 'failed', 'cancelled') as has_ended
    from {schema}.instances i
    where i.id = $1
    for no key update skip locked
),
cancelled as (
    update {schema}.instances i
    set
        status = case when t.has_ended or t.status = 'executing' then i.status else 'cancelled' end,
        finished_at = case when t.has_ended or t.status = 'executing' then i.finished_at else now() end,
        inbox = case when t.has_ended or t.status = 'executing' then i.inbox else 0 end,
        children_pending = case when t.has_ended or t.status = 'executing' then i.children_pending end,
        cancel_requested = i.cancel_requested or t.status = 'executing',
        cascades = i.cascades or $2
    from target t
    where i.id = t.id and ($2 or not t.has_ended)
),
letters as materialized (
    select found.address, $1::uuid as wanted
    from target t
    cross join lateral (select s.ctid as address from {schema}.signals s where s.instance_id = t.id offset 0) found
    where not t.has_ended and t.status <> 'executing'
),
cleared as (
    delete from {schema}.signals s using letters where s.ctid = letters.address and letters.wanted = $1
)
select t.status::text, t.watched, exists (select from {schema}.instances i where i.id = $1) as is_there
from (select) as one
left join target t on true
