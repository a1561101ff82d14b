-- Notes which machines no live worker runs, and sets those aside that nobody has run for a while.
--
-- $1 how long nobody must have run them, in microseconds
--
-- Does nothing while no worker runs anything: then no claim has to pass over the rows, and a node that is only
-- restarted finds them as they were.
--
-- Locks: `for no key update skip locked`. A worker that announces a machine at this moment waits for this and then
-- corrects it, or this passes over the machine.
with served as (
    select distinct pg_catalog.unnest(w.machines) as id from {schema}.workers w where not w.dead
),
judged as (
    select m.id, exists (select from served s where s.id = m.id) as is_served
    from {schema}.machines m
    where exists (select from served)
        and (
            -- The mark is wrong, or its time has come.
            (m.unserved_since is null) <> exists (select from served s where s.id = m.id)
            or not m.set_aside and m.unserved_since <= now() - $1::bigint * interval '1 microsecond'
        )
    order by m.id
    for no key update of m skip locked
)
update {schema}.machines m
set
    unserved_since = case when not judged.is_served then coalesce(m.unserved_since, now()) end,
    set_aside = not judged.is_served
        and coalesce(m.unserved_since <= now() - $1::bigint * interval '1 microsecond', false)
from judged
where m.id = judged.id
