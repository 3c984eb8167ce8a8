"""A share group as the source of a streaming query (KIP-932)."""
