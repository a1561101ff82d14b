-- Asks whoever runs instances to cancel them.
--
-- ?1 ids, ?2 whether their live children are cancelled, too, when they end
update gen_durable_instances
set cancel_requested = 1, cascades = cascades or ?2
where id in (select unhex(b.value) from json_each(?1) b) and +status = 'executing'
returning id
