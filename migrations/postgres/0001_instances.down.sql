drop view {schema}.overview;
drop table {schema}.instances;
drop table {schema}.workers;
drop table {schema}.machines;
drop type {schema}.status;
