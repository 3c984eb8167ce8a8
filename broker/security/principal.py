"""Who a client is, as far as it has shown it."""

from typing import Final, NamedTuple


class KafkaPrincipal(NamedTuple):
    """A client's identity in Kafka's words: ``User:alice``."""

    name: str
    type: str = "User"
    token_authenticated: bool = False
    """It came with a delegation token: that makes no other token (KIP-48)."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal("ANONYMOUS")
"""Kafka's principal of a client that did not authenticate."""
