"""The options of queries: declared once, and checked before any connection is opened."""
