"""The cluster's simulator with members of a consumer group (KIP-848)."""
