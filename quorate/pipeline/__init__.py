"""Pipelines: topics → SQL → Parquet, each offset exactly once, whatever is killed when.

How that is kept stands in ``sink``. ``run`` is one run from its beginning to its end; it knows
neither Spark nor a file system but by the ports that ``rows``, ``filesystem`` and ``registry``
fill. Names of files are in ``layout``, what to read in ``planning``.
"""
