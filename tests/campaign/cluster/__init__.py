"""The cluster level: one node's folder is damaged between a kill -9 of all and the next start."""
