-- Takes the most urgent due rows of a queue for a worker.
--
-- ?1 worker, ?2 number of the claim, ?3 queue, ?4 machines this engine can run, ?5 limit, ?6 crashes from which on a
-- row runs alone, ?7 whether such a row may be taken
--
-- Commits relaxed: a claim that a power loss takes away is only a row that is ready again, and the log is in order, so
-- a later flush is never durable without it.
--
-- Plan: walks `gen_durable_instances_pick` in order and stops at the limit. `indexed by` fails loudly where that is
-- impossible; the `+` keeps the machines from becoming a constraint of an index, which would lose the order.
with picked as materialized (
    select i.rowid as place, i.crashes
    from gen_durable_instances i indexed by gen_durable_instances_pick
    where i.status = 'ready'
        and i.queue = ?3
        and +i.machine_id in (select m.value from json_each(?4) m)
    order by i.priority, i.eligible_at
    limit ?5
),
head as materialized (
    select picked.place, picked.crashes from picked limit 1
)
update gen_durable_instances
set status = 'executing', claimed_by = ?1, claim = ?2
where rowid in (
        select picked.place
        from picked
        cross join head
        where case when head.crashes >= ?6 then ?7 and picked.place = head.place else picked.crashes < ?6 end
    )
    and exists (select 1 from gen_durable_workers w where w.id = ?1 and not w.dead)
returning
    id, machine_id, step, state, revision, attempt, failures, crashes, trace_context, priority, eligible_at,
    exists (select 1 from picked p where p.crashes >= ?6),
    parent_id is not null, round, awaits, timed_out, seen, inbox
