-- Which migrations this file has seen. Not a migration itself: it is there before the first.
create table if not exists gen_durable_migrations (
    version integer primary key,
    oldest_code integer not null,
    applied_at integer not null
) strict;
