"""Client quotas: whom they are for, what they are called, and which of several is in force."""

from collections.abc import Mapping
from typing import Final, NamedTuple

CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"

QUOTA_KEYS: Final = frozenset(
    {CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE}
)

_ALIASES: Final = {"controller_mutations_rate": CONTROLLER_MUTATION_RATE}
"""KIP-599 spells it so in its examples, Kafka's code does not: both are taken (Q7)."""

EVERYBODY: Final = ""
"""In place of a user's or client's name: the default, for those that have no quota themselves."""


class QuotaEntity(NamedTuple):
    """Whom a quota is for. None: it does not depend on that; ``EVERYBODY``: its default."""

    user: str | None = None
    client_id: str | None = None

    def __str__(self) -> str:
        """``user 'anna', the default client-id``: as errors name it."""
        parts = zip(("user", "client-id"), self, strict=True)
        return ", ".join(
            f"the default {kind}" if name == EVERYBODY else f"{kind} {name!r}"
            for kind, name in parts
            if name is not None
        )


class QuotaInForce(NamedTuple):
    """A quota as it binds one client.

    ``shared_by``: with whom it is shared. All clients with the same value use it up together: those
    of one user where it was set for users, whatever their client ids.
    """

    limit: float
    shared_by: QuotaEntity


Quotas = Mapping[str, float]
ClientQuotas = Mapping[QuotaEntity, Quotas]


def stored_name(key: str) -> str:
    """The one name under which a quota is stored, of whatever spelling."""
    return _ALIASES.get(key, key)


def quota_in_force(
    quotas: ClientQuotas, user: str, client_id: str, key: str
) -> QuotaInForce | None:
    """The quota ``key`` of one client, from the most particular place that has it; None: nowhere.

    User and client id together come before the user alone, users before client ids, and names
    before defaults: Kafka's order (Q7).
    """
    pair = QuotaEntity(user, client_id)
    user_alone = QuotaEntity(user=user)
    client_alone = QuotaEntity(client_id=client_id)
    for entity, shared_by in (
        (pair, pair),
        (QuotaEntity(user, EVERYBODY), pair),
        (user_alone, user_alone),
        (QuotaEntity(EVERYBODY, client_id), pair),
        (QuotaEntity(EVERYBODY, EVERYBODY), pair),
        (QuotaEntity(user=EVERYBODY), user_alone),
        (client_alone, client_alone),
        (QuotaEntity(client_id=EVERYBODY), client_alone),
    ):
        limit = quotas.get(entity, _NO_QUOTAS).get(key)
        if limit is not None:
            return QuotaInForce(limit, shared_by)
    return None


_NO_QUOTAS: Final[Quotas] = {}
