-- Adds machines that are new.
--
-- Parallel arrays: $1 name, $2 version
--
-- Looks first: an identity that `on conflict` throws away is gone. Sorted, so that nodes that start at once with
-- the same machines wait for each other in one order.
insert into {schema}.machines (name, version)
select distinct b.name, b.version
from unnest($1::text[], $2::bigint[]) as b(name, version)
where not exists (select from {schema}.machines m where m.name = b.name and m.version = b.version)
order by b.name, b.version
on conflict (name, version) do nothing
