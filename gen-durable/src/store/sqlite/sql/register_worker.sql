-- Registers a worker: a new holder of claims. Its id is never used again.
--
-- ?1 engine, ?2 node, ?3 now
insert into gen_durable_workers (engine, node, started_at, beaten_at) values (?1, ?2, ?3, ?3) returning id
