-- Whether the file has been migrated at all.
select count(*) from sqlite_schema where type = 'table' and name = 'gen_durable_migrations'
