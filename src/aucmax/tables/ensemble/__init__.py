"""Several models of one table, each judged by rows that it has not seen, as one."""
