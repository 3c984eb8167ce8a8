"""The entity types that can have a quota: users, client ids (KIP-546), and addresses (KIP-612)."""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate_proto.v1 import errors_pb2

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


def check_entity_type(entity_type: str) -> None:
    """Refuse an entity type that cannot have quotas.

    Raises:
        KafkaError: INVALID_REQUEST, because the type is none of these.
    """
    if entity_type not in (USER, CLIENT_ID, IP):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"entity type {entity_type!r} has no quotas here: {USER}, {CLIENT_ID} and {IP} have",
        )
