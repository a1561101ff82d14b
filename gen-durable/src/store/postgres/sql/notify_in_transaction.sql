-- Tells other nodes when the transaction of a user is committed.
--
-- $1 channel, $2 payloads
select pg_notify($1, p.payload)
from pg_catalog.unnest($2::text[]) as p(payload)
