"""The schema registry without a broker: requests are decided on a state, and records applied."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.broker.registry.operations.calls import HeavyWork, RegistryCall
from quorate.broker.registry.operations.table import OPERATIONS, Operation
from quorate.broker.registry.registry_errors import RegistryError
from quorate.broker.registry.registry_json import json_bytes
from quorate.broker.registry.state.registry_state import RegistryState
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings, Rights
from quorate.broker.security.principal import KafkaPrincipal
from quorate.common.acl_types import AclOperation, ResourceType
from tests.support.followers import ShownImage


class Refused(NamedTuple):
    """A refusal: the HTTP status and the code."""

    status: int
    code: int


class AllowedRights(Rights):
    """Rights of a client by a list, such as ``{("WRITE", "orders")}``; on the cluster ``cluster``.

    Like Kafka, READ, WRITE and others imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
    """

    def __init__(self, allowed: frozenset[tuple[str, str]] | None) -> None:
        """With None everything is allowed."""
        super().__init__(
            Authorizer(ShownImage(), AuthorizerSettings()), KafkaPrincipal("alice"), "h"
        )
        self._allowed = allowed
        self.asked: list[tuple[str, str]] = []

    def may(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        log_denied: bool = True,
    ) -> bool:
        where = "cluster" if resource_type is ResourceType.CLUSTER else name
        self.asked.append((operation.name, where))
        return self._allowed is None or (operation.name, where) in self._allowed


class TriedRegistry:
    """A registry that answers at once. ``log`` has the records that it has written."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.log: list[LogRecord] = []

    def ask(
        self,
        method: str,
        url: str,
        body: object = None,
        *,
        rights: Rights | None = None,
    ) -> Any:  # noqa: ANN401 - the answer, or a Refused
        """Return the answer to a request, as a client would read it, or why it is refused."""
        operation, parameters = _found(method, urlsplit(url).path)
        query = parse_qsl(urlsplit(url).query)
        raw = b"" if body is None else json.dumps(body).encode()
        try:
            return self._carried_out(
                operation, RegistryCall(parameters, query, raw), rights or AllowedRights(None)
            )
        except RegistryError as error:
            return Refused(error.status, error.code)

    def register(self, subject: str, schema: object, **more: object) -> Any:  # noqa: ANN401
        """Register a schema, given as JSON or as a text, and return its id or a ``Refused``."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer = self.ask("POST", f"/subjects/{subject}/versions", {"schema": text, **more})
        return answer if isinstance(answer, Refused) else answer["id"]

    def replayed(self, keep: Callable[[LogRecord], bool] = lambda _: True) -> "TriedRegistry":
        """Return another registry, which has read the log."""
        other = TriedRegistry()
        for record in filter(keep, self.log):
            other.state.apply(record)
            other.log.append(record)
        return other

    def compacted(self) -> "TriedRegistry":
        """Return another registry, which has read what compaction leaves of the log, without
        tombstones."""
        last: Mapping[bytes, int] = {one.key: place for place, one in enumerate(self.log)}
        kept = [
            one
            for place, one in enumerate(self.log)
            if last[one.key] == place and one.value is not None
        ]
        return self.replayed(lambda record: any(record is one for one in kept))

    def _carried_out(self, operation: Operation, call: RegistryCall, rights: Rights) -> Any:  # noqa: ANN401
        outcome = operation.decide(self.state, call, rights)
        if isinstance(outcome, HeavyWork):
            outcome = outcome.decide(outcome.compute(outcome.plan))
        assert operation.is_change or not outcome.records, "only changes write"
        for record in outcome.records:
            self.log.append(record)
            self.state.apply(record)
        return json.loads(json_bytes(outcome.answer))


def _found(method: str, path: str) -> tuple[Operation, dict[str, str]]:
    for operation in OPERATIONS:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", operation.path)
        found = re.fullmatch(pattern, path)
        if found is not None and operation.method == method:
            return operation, {name: unquote(one) for name, one in found.groupdict().items()}
    raise AssertionError(f"no route for {method} {path}")
