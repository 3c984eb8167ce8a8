"""The schema registry of the cluster, which every broker with ``registry.listener`` serves."""
