"""The errors of a local cluster."""


class LocalClusterError(Exception):
    """A local cluster cannot do something; the message names the thing, the value and what to
    do."""
