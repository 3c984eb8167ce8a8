"""A stream of offset ranges: what each micro-batch reads, and what its checkpoint says."""
