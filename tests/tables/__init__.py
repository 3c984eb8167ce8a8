"""Kills table services, brokers and voters while topics become tables, and checks the tables."""
