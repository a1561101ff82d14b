-- Marks instances that have not ended, so that their end is told. Commits relaxed: who made a mark that a power loss
-- takes away also asks again after a while.
--
-- ?1 ids
update gen_durable_instances
set watched = 1
where id in (select unhex(b.value) from json_each(?1) b)
    and not watched
    and finished_at is null
