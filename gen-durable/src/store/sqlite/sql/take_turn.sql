-- Takes the write lock in a transaction of a user, who may have begun it deferred, and changes nothing.
--
-- A transaction that has not read yet waits for the lock; one that has and is then to write fails at once when anybody
-- else writes. So statements that look before they write come after this one.
update gen_durable_machines set last_seen = last_seen where false
