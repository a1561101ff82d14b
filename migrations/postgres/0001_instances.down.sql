drop view {schema}.overview;
drop table {schema}.signals;
drop table {schema}.instances;
drop table {schema}.workers;
drop table {schema}.machines;
drop type {schema}.key_scope;
drop type {schema}.status;
