"""A local cluster of real processes: its configuration files, ports, start, supervision and
stop."""
