"""Pipelines: topics, through SQL, into Parquet files, with each offset exactly once.

It stays exactly once whatever is killed at whatever moment; ``sink`` explains how. The modules:

- ``pipeline_config``: the file that describes a pipeline.
- ``execution``: puts a pipeline together and runs it in a Spark session.
- ``pipeline_runner``: one run, from its beginning to its end.
- ``pipeline_planner``: which offsets a batch reads.
- ``spark_rows``: the rows of a batch, read, transformed and staged by Spark.
- ``sink``, ``sink_layout``, ``sink_files``: the folder of Parquet files.
- ``pipeline_registry``: the offsets that the cluster keeps, and the lease of a run.
- ``run_progress``: the progress bar. ``pipeline_positions``: what status and reset look at.
"""
