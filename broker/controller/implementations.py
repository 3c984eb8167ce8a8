"""What carries out each change at a controller, and what is said by one whose time is over."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

from broker.control.changes import A, Change, Q
from broker.controller.event_queue import LeftOffice
from quorate_proto.v1 import errors_pb2
from quorum.errors import SessionLost


class Implementations:
    """Change → the function that carries it out; one that has none is UNSUPPORTED_VERSION."""

    def __init__(self) -> None:
        self._by_rpc: dict[str, Callable[[Any], Awaitable[Any]]] = {}

    def add(self, change: Change[Q, A], implementation: Callable[[Q], Awaitable[A]]) -> None:
        self._by_rpc[change.rpc] = implementation

    async def carry_out(self, change: Change[Q, A], request: Q) -> A:
        """What becomes of it; NOT_CONTROLLER once this controller has left, or lost its session."""
        implementation = self._by_rpc.get(change.rpc)
        if implementation is None:
            return change.failed(
                request, errors_pb2.UNSUPPORTED_VERSION, f"{change.rpc} is not served yet"
            )
        try:
            return cast("A", await implementation(request))
        except (LeftOffice, SessionLost):
            answer = change.answer()
            answer.error_code = errors_pb2.NOT_CONTROLLER
            return answer
