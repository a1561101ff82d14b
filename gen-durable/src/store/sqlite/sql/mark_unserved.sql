-- Notes which machines the worker that runs the queues cannot run. Does nothing while there is none.
update gen_durable_machines
set set_aside = not set_aside
where exists (select 1 from gen_durable_workers w where not w.dead and json_array_length(w.machines) > 0)
    and set_aside = exists (
        select 1
        from gen_durable_workers w, json_each(w.machines) m
        where not w.dead and m.value = gen_durable_machines.id
    )
