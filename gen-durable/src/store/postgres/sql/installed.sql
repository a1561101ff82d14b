-- The latest migration, and the oldest code that all of them admit.
select max(version), max(oldest_code) from {schema}.migrations
