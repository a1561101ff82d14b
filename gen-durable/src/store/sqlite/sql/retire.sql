-- Ends a worker that stops. Rows that it still owns, if any, come back through `reclaim.sql`.
--
-- ?1 worker, ?2 now
update gen_durable_workers set dead = 1, beaten_at = ?2 where id = ?1 and not dead
