"""A cluster's brokers: which are there, which one is the controller, when to ask again.

Any gRPC address once seen is kept as a way back in, so that a client outlives its bootstrap broker.
Like admin calls this is written as generators, over four effects that ``runners`` carries out.
"""

import logging
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from quorate.client.errors import ClusterUnreachable, RequestFailed
from quorate.client.results import ClusterStatus
from quorate.client.steps import (
    Patience,
    Question,
    Request,
    Service,
    Steps,
    ToAnyBroker,
    ToController,
    ToEachBroker,
)
from quorate_proto.v1 import admin_pb2, errors_pb2

log = logging.getLogger(__name__)

R = TypeVar("R")

PROBE_TIMEOUT_MS: Final = 2_000
"""How long one broker may take to say who the controller is."""

RETRY_PAUSE_MS: Final = 100

_RETRIABLE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class Call:
    """Call one broker; gives its answer, or raises grpc.RpcError."""

    address: str
    service: Service
    rpc: str
    request: Message
    timeout_s: float


@dataclass(frozen=True, slots=True)
class CallEach:
    """Call several brokers at once; gives a list of answers, None where there was none."""

    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class Discover:
    """Find gRPC addresses of brokers; raises OSError or ClusterUnreachable."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


Effect = Call | CallEach | Discover | Pause
Effects = Generator[Effect, Any, R]


class ClusterConnection:
    """Carries out admin calls at any broker or at the controller, retried until a deadline.

    ``description``: whom the user named, for messages. Not thread-safe; calls of
    one thread may overlap.
    """

    def __init__(self, description: str, *, timeout_ms: int, client_id: str) -> None:
        self._description = description
        self._timeout_ms = timeout_ms
        self._client_id = client_id
        self._addresses: list[str] = []
        self._controller: str | None = None

    def carry_out(self, steps: Steps[R]) -> Effects[R]:
        """The call's result.

        Raises:
            ClusterUnreachable: nobody answered before the deadline.
            RequestFailed: the controller refused the request as a whole.
        """
        deadline = _Deadline(self._timeout_ms)
        answer: Any = None
        while True:
            try:
                question = steps.send(answer)
            except StopIteration as end:
                result: R = end.value
                return result
            answer = yield from self._answer(question, deadline)

    def _answer(self, question: Question, deadline: "_Deadline") -> Effects[Any]:
        match question:
            case Patience(time_ms=time_ms):
                if time_ms / 1000 >= deadline.left_s():
                    return False
                yield Pause(time_ms / 1000)
                return True
            case ToController():
                return (yield from self._on_controller(question))
            case ToAnyBroker():
                return (yield from self._on_any(question))
            case ToEachBroker():
                return (yield from self._on_each(question))

    def _on_any(self, question: ToAnyBroker) -> Effects[Any]:
        deadline = _Deadline(self._timeout_ms)
        self._fill_in(question)
        while True:
            failures: list[str] = []
            for address in (yield from self._known_addresses(failures)):
                try:
                    return (
                        yield Call(
                            address,
                            question.service,
                            question.rpc,
                            question.request,
                            deadline.probe_s(),
                        )
                    )
                except grpc.RpcError as error:
                    failures.append(_say(address, error))
            self._addresses.clear()
            yield deadline.pause(f"no broker of {self._description} answers", failures)

    def _on_each(self, question: ToEachBroker) -> Effects[dict[str, Any]]:
        timeout_s = min(PROBE_TIMEOUT_MS, self._timeout_ms) / 1000
        self._fill_in(question)
        answers = yield CallEach(
            [
                Call(address, question.service, question.rpc, question.request, timeout_s)
                for address in question.addresses
            ]
        )
        return dict(zip(question.addresses, answers, strict=True))

    def _on_controller(self, question: ToController) -> Effects[Any]:
        """The controller's answer; NOT_CONTROLLER means look again (F2).

        A call whose answer was lost is made again: what it asks for may then exist already.
        """
        deadline = _Deadline(self._timeout_ms)
        self._fill_in(question)
        while True:
            failures: list[str] = []
            address = self._controller or (yield from self._find_controller(deadline, failures))
            if address is not None:
                try:
                    answer = yield Call(
                        address, "admin", question.rpc, question.request, deadline.left_s()
                    )
                    if answer.error_code != errors_pb2.NOT_CONTROLLER:
                        self._controller = None if question.ends_tenure else address
                        return _checked(answer, question.what)
                    failures.append(f"{address}: NOT_CONTROLLER")
                except grpc.RpcError as error:
                    failures.append(_say(address, error))
            self._controller = None
            yield deadline.pause(f"{self._description} has no reachable controller", failures)

    def _find_controller(self, deadline: "_Deadline", failures: list[str]) -> Effects[str | None]:
        """The controller's address as the broker with the newest image knows it."""
        best: ClusterStatus | None = None
        request = admin_pb2.ClusterStatusRequest()
        for address in (yield from self._known_addresses(failures)):
            try:
                answer = yield Call(address, "admin", "ClusterStatus", request, deadline.probe_s())
            except grpc.RpcError as error:
                failures.append(_say(address, error))
                continue
            status = ClusterStatus.from_proto(answer)
            if best is None or status.metadata_offset > best.metadata_offset:
                best = status
        if best is None:
            self._addresses.clear()
            return None
        self._addresses = [broker.grpc for broker in best.brokers] or self._addresses
        controller = best.broker(best.controller_id)
        if controller is None:
            failures.append(f"controller_id is {best.controller_id}, which is no live broker")
            return None
        return controller.grpc

    def _known_addresses(self, failures: list[str]) -> Effects[list[str]]:
        if not self._addresses:
            try:
                self._addresses = list((yield Discover()))
            except (OSError, ClusterUnreachable) as error:
                failures.append(str(error))
        return list(self._addresses)

    def _fill_in(self, question: Request) -> None:
        """Who asks and how long they wait, in requests that have a place for it."""
        request: Any = question.request
        if "context" in request.DESCRIPTOR.fields_by_name:
            request.context.client_id = self._client_id
            request.context.timeout_ms = self._timeout_ms
            request.context.forwarded_by = -1
            request.context.api_name = question.rpc


class _Deadline:
    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._end = time.monotonic() + timeout_ms / 1000

    def left_s(self) -> float:
        return max(0.05, self._end - time.monotonic())

    def probe_s(self) -> float:
        return min(PROBE_TIMEOUT_MS / 1000, self.left_s())

    def pause(self, what: str, failures: list[str]) -> Pause:
        """Before the next attempt.

        Raises:
            ClusterUnreachable: there is no time for another one.
        """
        if time.monotonic() + RETRY_PAUSE_MS / 1000 >= self._end:
            reason = failures[-1] if failures else "no address is known"
            raise ClusterUnreachable(f"{what} after {self._timeout_ms} ms ({reason})")
        return Pause(RETRY_PAUSE_MS / 1000)


def _checked(answer: Any, what: str) -> Any:  # noqa: ANN401 - any answer of a controller
    if answer.error_code != errors_pb2.NONE:
        raise RequestFailed(answer.error_code, getattr(answer, "error_message", "") or what)
    return answer


def _say(address: str, error: grpc.RpcError) -> str:
    """One line about a failed call.

    Raises:
        ClusterUnreachable: trying again cannot help.
    """
    code, details = error.code(), error.details()
    if code not in _RETRIABLE:
        raise ClusterUnreachable(f"{address}: {code.name}: {details}") from error
    return f"{address}: {code.name}: {details}"
