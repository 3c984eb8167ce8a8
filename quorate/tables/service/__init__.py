"""The table service: keeps the tables of all topics that say ``table.format``.

- ``service_config``: the file of a service.
- ``table_topics``: which topics are to have tables, by their configurations.
- ``work_sharing``: which tables a process takes. It is pure.
- ``table_worker``: one table, by one thread.
- ``table_service``: the loop over all of them.
- ``table_metrics``: figures for Prometheus.
"""
