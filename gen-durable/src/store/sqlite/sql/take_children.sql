-- Lets an instance that has ended take its live children with it after all.
--
-- ?1 id
update gen_durable_instances set cascades = 1 where id = ?1 and finished_at is not null
