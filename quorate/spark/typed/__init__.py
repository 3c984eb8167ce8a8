"""Typed columns: keys and values that are decoded by a schema, and encoded by one."""
