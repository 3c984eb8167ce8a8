"""Metrics of a running process: declared once, read on request, served to Prometheus."""
