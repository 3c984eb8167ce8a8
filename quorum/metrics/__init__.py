"""Figures of a running process: declared once, read when asked, served to Prometheus."""
