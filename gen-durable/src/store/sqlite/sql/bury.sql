-- Declares a worker dead, unless it has beaten since it was looked at.
--
-- ?1 worker, ?2 the beat that was seen
update gen_durable_workers set dead = 1 where id = ?1 and beat = ?2 and not dead
