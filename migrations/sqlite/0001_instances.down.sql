drop view gen_durable_overview;
drop table gen_durable_signals;
drop table gen_durable_instances;
drop table gen_durable_workers;
drop table gen_durable_machines;
