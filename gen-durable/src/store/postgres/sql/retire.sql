-- Ends a worker that stops. Rows that it still owns, if any, come back through `reclaim.sql`.
--
-- $1 worker
update {schema}.workers set dead = true, beaten_at = now() where id = $1 and not dead
