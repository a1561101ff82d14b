-- Deletes rows that `coordinate.sql` ended as done in the same transaction and that nobody needs, as `remove.sql` does.
-- Their signals are gone already.
--
-- ?1 ids
delete from gen_durable_instances
where id in (select unhex(b.value) from json_each(?1) b)
    and +status = 'done'
    and not watched
    and not cascades
    and parent_id is null
    and key_scope is not 'row'
