"""Rows to record batches v2, and on to the leaders: acks=all, idempotent per task."""
