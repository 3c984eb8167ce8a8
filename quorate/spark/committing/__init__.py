"""Commits the offsets that a query has read to a consumer group: the option `commitGroup`."""
