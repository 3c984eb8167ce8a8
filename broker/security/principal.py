"""Who a client is, as far as it has shown it."""

from typing import Final, NamedTuple

USER_TYPE: Final = "User"
"""The one type of principal that Kafka itself makes."""


class KafkaPrincipal(NamedTuple):
    """A client's identity in Kafka's words: ``User:alice``."""

    name: str
    type: str = USER_TYPE
    token_authenticated: bool = False
    """It came with a delegation token: that makes no other token (KIP-48)."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


CLUSTER_ADMIN: Final = KafkaPrincipal("quorate-cluster-admin", "Broker")
"""On whose behalf brokers themselves ask for topics; the quota of this user is theirs (Q13).

Of a type of its own, so that no client can be it, whatever it is called.
"""

ANONYMOUS: Final = KafkaPrincipal("ANONYMOUS")
"""Kafka's principal of a client that did not authenticate."""


RESERVED_NAMES: Final = frozenset({ANONYMOUS.name, "quorate-cluster-admin"})
"""Whom they name never authenticates: nobody may come to such a name by a password, a certificate
or a token. The second is the cluster itself, which asks for internal topics."""


def parse_principal(text: str) -> KafkaPrincipal:
    """``User:alice`` as its parts; names may hold colons, and without any all is the type."""
    kind, _, name = text.partition(":")
    return KafkaPrincipal(name, kind)
