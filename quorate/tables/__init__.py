"""Topics as tables: Iceberg and Delta tables that hold each offset of a topic exactly once.

- ``table_position``: how far a table and the quorum are, and which of them is right after a crash.
- ``table_config``: format, place, partitions and sizes of a table.
- ``partitioning``, ``data_files``: rows become Parquet files, on any host.
- ``lake_table``, ``iceberg_table``, ``delta_table``: one atomic commit of files and positions.
- ``table_commits``: tries a commit again where another writer was faster.
- ``table_runner``: one run: it settles positions, then does batch after batch.
- ``local_rows``, ``spark_rows``: the rows of a batch, read by this process or by Spark.
- ``service``: takes over all topics that say ``table.format``.
"""
