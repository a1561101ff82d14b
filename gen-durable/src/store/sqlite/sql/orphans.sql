-- Live children of instances that ended and take their children with them, but for those that were asked to end.
--
-- ?1 limit
--
-- Plan: from `gen_durable_instances_cascades` to `gen_durable_instances_live_children`; children that were cancelled
-- are in neither.
select c.id
from gen_durable_instances p indexed by gen_durable_instances_cascades
cross join gen_durable_instances c indexed by gen_durable_instances_live_children on c.parent_id = p.id
where p.cascades
    and p.finished_at is not null
    and c.parent_id is not null
    and c.status not in ('done', 'failed', 'cancelled')
    and not (c.status = 'executing' and c.cancel_requested and c.cascades)
limit ?1
