"""Decodes Kafka record batches v2 into Arrow, with compiled kernels that trust no field."""
