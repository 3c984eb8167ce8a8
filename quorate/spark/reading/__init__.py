"""Reads batch queries: the driver plans offset ranges, the executors read them as Arrow batches."""
