"""Writes rows as record batches v2 to the leaders, with acks=all and idempotence per task."""
