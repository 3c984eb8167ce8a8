"""Client quotas: for whom they are set, how they are called, and which of several is in force."""

from collections.abc import Mapping
from typing import Final, NamedTuple

CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

QUOTA_KEYS: Final = frozenset(
    {CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE}
)
"""The quotas of users and client ids."""

IP_QUOTA_KEYS: Final = frozenset({CONNECTION_CREATION_RATE})
"""The quotas of addresses (KIP-612)."""

_ALIASES: Final = {"controller_mutations_rate": CONTROLLER_MUTATION_RATE}
"""KIP-599 uses this spelling in its examples, and Kafka's code does not. Both are accepted (Q7)."""

EVERYBODY: Final = ""
"""Stands for the default: the quota of all users or clients that have none of their own."""


class ClientQuotaEntity(NamedTuple):
    """The users and clients that a quota is for, or the address.

    A field that is None does not matter for the quota; ``EVERYBODY`` means the default.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        """Return the entity as error messages name it: ``user 'anna', the default client-id``."""
        parts = zip(("user", "client-id", "ip"), self, strict=True)
        return ", ".join(
            f"the default {kind}" if name == EVERYBODY else f"{kind} {name!r}"
            for kind, name in parts
            if name is not None
        )


class QuotaInForce(NamedTuple):
    """A quota as it limits one client.

    ``shared_by`` says who shares it. All clients with the same value use the quota up together:
    where it was set for users, all client ids of one user do.
    """

    limit: float
    shared_by: ClientQuotaEntity


Quotas = Mapping[str, float]
ClientQuotas = Mapping[ClientQuotaEntity, Quotas]


def stored_name(key: str) -> str:
    """Return the one name under which a quota is stored, whatever spelling ``key`` has."""
    return _ALIASES.get(key, key)


def quota_in_force(
    quotas: ClientQuotas, user: str, client_id: str, key: str
) -> QuotaInForce | None:
    """Return the quota ``key`` of one client, or None if no entity that applies to it has one.

    The most particular entity wins, in Kafka's order: user and client id together come before the
    user alone, users before client ids, and names before defaults (Q7).
    """
    pair = ClientQuotaEntity(user, client_id)
    user_alone = ClientQuotaEntity(user=user)
    client_alone = ClientQuotaEntity(client_id=client_id)
    for entity, shared_by in (
        (pair, pair),
        (ClientQuotaEntity(user, EVERYBODY), pair),
        (user_alone, user_alone),
        (ClientQuotaEntity(EVERYBODY, client_id), pair),
        (ClientQuotaEntity(EVERYBODY, EVERYBODY), pair),
        (ClientQuotaEntity(user=EVERYBODY), user_alone),
        (client_alone, client_alone),
        (ClientQuotaEntity(client_id=EVERYBODY), client_alone),
    ):
        limit = quotas.get(entity, _NO_QUOTAS).get(key)
        if limit is not None:
            return QuotaInForce(limit, shared_by)
    return None


_NO_QUOTAS: Final[Quotas] = {}
