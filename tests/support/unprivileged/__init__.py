"""Requests by users without rights, with random values in every field."""
