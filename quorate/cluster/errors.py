"""What can go wrong with a local cluster."""


class LocalClusterError(Exception):
    """The message names the thing, the value and what to do."""
