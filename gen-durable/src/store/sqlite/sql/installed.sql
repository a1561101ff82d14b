-- The latest migration, and the oldest code that all of them admit.
select coalesce(max(version), 0), coalesce(max(oldest_code), 0) from gen_durable_migrations
