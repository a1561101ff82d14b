-- Registers a worker: a new holder of claims. Its id is never used again.
--
-- $1 engine, $2 node
insert into {schema}.workers (engine, node) values ($1, $2) returning id
