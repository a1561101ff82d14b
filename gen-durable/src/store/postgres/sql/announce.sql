-- Notes which machines a worker runs, and ends their being set aside.
--
-- $1 worker, $2 machines
--
-- Locks: the machines in the order of their ids; nothing else locks more than one of them and waits.
with noted as (
    update {schema}.workers w set machines = $2 where w.id = $1
),
served as (
    select m.id
    from {schema}.machines m
    where m.id = any($2) and m.unserved_since is not null
    order by m.id
    for no key update
)
update {schema}.machines m
set unserved_since = null, set_aside = false
from served
where m.id = served.id
