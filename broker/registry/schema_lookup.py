"""Looks up ids of schemas for brokers that validate records, on their own behalf."""

from quorate.broker.common.errors import KafkaError
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.registry.operations.calls import RegistryCall
from quorate.broker.registry.operations.table import HAS_SCHEMA
from quorate.broker.registry.registry_errors import RegistryError
from quorate.broker.registry.registry_json import json_bytes
from quorate.broker.registry.registry_router import RegistryRouter
from quorate_proto.v1 import errors_pb2

_TRUE = json_bytes(True)


class SchemaLookup:
    """Asks the leader of the registry's topic, which may be this broker."""

    def __init__(self, router: RegistryRouter) -> None:
        self._router = router

    async def has(self, schema_id: int) -> bool:
        """Return whether a schema has this id, in whatever context.

        Raises:
            KafkaError: REQUEST_TIMED_OUT, the registry does not answer; producers try again.
        """
        context = RequestContext(version=0, client_id="", client_host="")
        call = RegistryCall({"id": str(schema_id)})
        try:
            return await self._router.call(HAS_SCHEMA, call, context) == _TRUE
        except RegistryError as error:
            raise KafkaError(
                errors_pb2.REQUEST_TIMED_OUT,
                f"schema id {schema_id} cannot be looked up: {error.message}",
            ) from error
