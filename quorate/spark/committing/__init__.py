"""Showing in a consumer group how far a query is: the option `commitGroup`."""
