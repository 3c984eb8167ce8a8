"""All log folders of one broker (JBOD, KIP-112): which there are, and which of them work."""
