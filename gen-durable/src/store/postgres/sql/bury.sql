-- Declares a worker dead, unless it has beaten since it was looked at.
--
-- $1 worker, $2 the beat that was seen
update {schema}.workers set dead = true where id = $1 and beat = $2 and not dead
