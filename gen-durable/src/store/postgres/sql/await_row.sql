-- Waits for an instance's row and locks it, in the transaction that its step was lent.
--
-- $1 id
--
-- Whoever holds the row may wait for another one that the step wrote: a user's transaction, for example, that sent the
-- instance a signal and then writes where the step did. So this waits as the database's own locks do, and not by looking
-- again: then the database sees the circle, and breaks it after its `deadlock_timeout`.
select i.id
from {schema}.instances i
where i.id = $1 and (select set_config('lock_timeout', '10s', true)) is not null
for no key update
