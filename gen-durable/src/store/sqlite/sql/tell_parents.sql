-- Tells parents of children that ended. A parent whose children have all ended becomes ready. `mark_joined.sql` follows in
-- the same transaction, with the same children.
--
-- ?1 now, ?2 limit of children
--
-- Closes: children of an earlier fan-out that end late. Only those of the fan-out that the parent waits for count.
--
-- Plan: reads the children from `gen_durable_instances_unjoined`, in its order; parents by id.
with ended as materialized (
    select c.parent_id, c.parent_round
    from gen_durable_instances c indexed by gen_durable_instances_unjoined
    where c.parent_id is not null and not c.joined and c.status in ('done', 'failed', 'cancelled')
    order by c.parent_id, c.rowid
    limit ?2
),
told as materialized (
    select e.parent_id, e.parent_round, count(*) as children from ended e group by e.parent_id, e.parent_round
)
update gen_durable_instances as i
set
    children_pending = i.children_pending - t.children,
    status = case
        when i.children_pending > t.children then 'joining'
        when i.machine_id in (select m.id from gen_durable_machines m where m.set_aside) then 'blocked'
        else 'ready'
    end,
    eligible_at = case when i.children_pending > t.children then i.eligible_at else ?1 end
from told t
where i.id = t.parent_id and +i.status = 'joining' and i.round = t.parent_round
returning case when status = 'ready' then queue end
