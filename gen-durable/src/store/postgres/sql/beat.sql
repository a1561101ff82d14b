-- A heartbeat: no row when the worker was declared dead, or is gone. Returns what it holds and is asked to cancel.
--
-- $1 worker
--
-- Commits asynchronously: a beat that a crash of the database loses is followed by the next one.
-- Touches no indexed column.
with relaxed as materialized (
    select set_config('synchronous_commit', 'off', true) as setting
)
update {schema}.workers w
set beat = w.beat + 1, beaten_at = now()
from relaxed
where w.id = $1 and not w.dead and relaxed.setting = 'off'
returning array(
    select i.id
    from {schema}.instances i
    where i.status = 'executing' and i.cancel_requested and i.claimed_by = $1
    limit 1000
)
