-- Which migrations this schema has seen. Not a migration itself: it is there before the first.
create table if not exists {schema}.migrations (
    version int primary key,
    oldest_code int not null,
    applied_at timestamptz not null default now()
);
