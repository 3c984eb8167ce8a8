"""Moves of replicas between the log folders of a broker while it runs (KIP-113)."""
