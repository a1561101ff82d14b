-- All workers that are not dead.
select id, engine, node, beat from {schema}.workers where not dead order by id
