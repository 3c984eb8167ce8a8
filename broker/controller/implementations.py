"""What carries out each change at a controller."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from broker.control.changes import A, Change, Q
from quorate_proto.v1 import errors_pb2


class Implementations:
    """Change → the function that carries it out; one that has none is UNSUPPORTED_VERSION."""

    def __init__(self) -> None:
        self._by_rpc: dict[str, Callable[[Any], Awaitable[Any]]] = {}

    def add(self, change: Change[Q, A], implementation: Callable[[Q], Awaitable[A]]) -> None:
        self._by_rpc[change.rpc] = implementation

    async def carry_out(self, change: Change[Q, A], request: Q) -> A:
        implementation = self._by_rpc.get(change.rpc)
        if implementation is None:
            return change.failed(
                request, errors_pb2.UNSUPPORTED_VERSION, f"{change.rpc} is not served yet"
            )
        return cast("A", await implementation(request))
