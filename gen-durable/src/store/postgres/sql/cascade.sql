-- Cancels live children of instances that have ended and take their children with them. Their own children follow.
--
-- $1 limit
--
-- Locks: the children, `skip locked`. A parent is done with when none of its children is left to be cancelled or asked.
--
-- Plan: the status of parents is compared as text, so that only the index of those that cascade matches, and not the one
-- of all that have ended.
with parents as materialized (
    select i.id
    from {schema}.instances i
    where i.cascades and i.status::text in ('done', 'failed', 'cancelled')
    order by i.id
    limit $1::bigint
),
children as materialized (
    select found.*, $1::bigint as wanted
    from parents p
    cross join lateral (
        select i.id, i.status
        from {schema}.instances i
        where i.parent_id = p.id
            and i.status not in ('done', 'failed', 'cancelled')
            and not (i.cancel_requested and i.cascades)
        limit $1::bigint
        for no key update skip locked
    ) found
    limit $1::bigint
),
cancelled as (
    update {schema}.instances i
    set
        status = case when c.status = 'executing' then i.status else 'cancelled' end,
        finished_at = case when c.status = 'executing' then i.finished_at else now() end,
        inbox = case when c.status = 'executing' then i.inbox else 0 end,
        children_pending = case when c.status = 'executing' then i.children_pending end,
        cancel_requested = c.status = 'executing',
        cascades = c.status = 'executing'
            or exists (
                select
                from {schema}.instances g
                where g.parent_id = i.id and g.status not in ('done', 'failed', 'cancelled')
            )
    from children c
    where i.id = c.id and c.wanted = $1
    returning i.id, i.status, c.wanted
),
letters as materialized (
    select found.address, c.wanted
    from cancelled c
    cross join lateral (select s.ctid as address from {schema}.signals s where s.instance_id = c.id offset 0) found
    where c.status = 'cancelled'
),
cleared as (
    delete from {schema}.signals s using letters where s.ctid = letters.address and letters.wanted = $1
),
done_with as (
    update {schema}.instances i
    set cascades = false
    from parents p
    where i.id = p.id
        and not exists (
            select
            from {schema}.instances c
            where c.parent_id = i.id
                and c.status not in ('done', 'failed', 'cancelled')
                and not (c.cancel_requested and c.cascades)
        )
    returning i.id
)
select
    array(select c.id from cancelled c where c.status = 'cancelled') as cancelled,
    array(select c.id from cancelled c where c.status <> 'cancelled') as asked,
    (select count(*) from parents) > least((select count(*) from done_with), $1::bigint - 1) as left_over
