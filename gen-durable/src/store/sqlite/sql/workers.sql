-- All workers that are not dead.
select id, engine, node, beat from gen_durable_workers where not dead order by id
