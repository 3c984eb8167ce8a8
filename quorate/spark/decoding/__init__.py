"""Kafka record batches v2 into Arrow: compiled, trusting no field."""
