-- Where an instance stands.
--
-- ?1 id
select i.status from gen_durable_instances i where i.id = ?1
