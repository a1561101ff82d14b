-- Whether the schema has been migrated at all.
--
-- $1 name of the schema
select exists (
    select
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1 and c.relname = 'migrations' and c.relkind = 'r'
)
