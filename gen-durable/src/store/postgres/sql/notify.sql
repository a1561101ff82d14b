-- Tells other nodes.
--
-- $1 channel, $2 payloads
--
-- Commits asynchronously: commits that notify wait for each other, and none of them should wait for the disk.
with relaxed as materialized (
    select set_config('synchronous_commit', 'off', true) as setting
)
select pg_notify($1, p.payload)
from relaxed
cross join pg_catalog.unnest($2::text[]) as p(payload)
where relaxed.setting = 'off'
