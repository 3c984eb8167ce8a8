"""Compaction leaves the newest record of each key in a log, at the offset it always had.

The code here is pure: batches go in and batches come out. The room ``cleaning`` does the reading
and writing.
"""
