-- Makes a failed instance ready again, with its attempts forgotten.
--
-- ?1 now, ?2 id, ?3 whether its parent waits for it again
update gen_durable_instances
set
    status = case
        when machine_id in (select m.id from gen_durable_machines m where m.set_aside) then 'blocked'
        else 'ready'
    end,
    attempt = 0,
    failures = 0,
    crashes = 0,
    error = null,
    finished_at = null,
    eligible_at = ?1,
    cancel_requested = 0,
    cascades = 0,
    joined = joined and not ?3
where id = ?2 and +status = 'failed'
returning queue
