-- Notes which machines a worker runs.
--
-- ?1 worker, ?2 machines: an array of ids
update gen_durable_workers set machines = ?2 where id = ?1
