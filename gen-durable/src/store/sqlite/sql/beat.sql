-- A heartbeat: no row when the worker was declared dead, or is gone.
--
-- ?1 worker, ?2 now
update gen_durable_workers set beat = beat + 1, beaten_at = ?2 where id = ?1 and not dead
