-- Cancels live instances that do not execute.
--
-- ?1 now, ?2 ids, ?3 whether their live children are cancelled, too
--
-- Closes: a claim at the same moment. What executes is left alone: whoever runs it is asked by `ask_to_cancel.sql`.
update gen_durable_instances
set
    status = 'cancelled',
    finished_at = ?1,
    inbox = 0,
    children_pending = null,
    cancel_requested = 0,
    cascades = cascades or ?3
where id in (select unhex(b.value) from json_each(?2) b) and finished_at is null and +status <> 'executing'
returning id, watched
