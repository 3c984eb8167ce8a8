"""A local cluster of real processes: configuration files, ports, starting, watching, stopping."""
