"""The entity types that can have a client quota: users and client ids (KIP-546)."""

from typing import Final

from quorate.broker.common.errors import KafkaError
from quorate_proto.v1 import errors_pb2

USER: Final = "user"
CLIENT_ID: Final = "client-id"


def check_entity_type(entity_type: str) -> None:
    """Refuse an entity type that cannot have quotas.

    Raises:
        KafkaError: INVALID_REQUEST, because the type is neither user nor client id.
    """
    if entity_type not in (USER, CLIENT_ID):
        raise KafkaError(
            errors_pb2.INVALID_REQUEST,
            f"entity type {entity_type!r} has no quotas here: {USER} and {CLIENT_ID} have",
        )
