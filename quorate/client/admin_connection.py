"""Finds the brokers and the controller of a cluster, and decides when to ask again.

Every gRPC address that was seen once is kept, so that a client outlives its bootstrap broker. Like
the admin calls, this module is written as generators. They yield four effects, which ``runners``
carries out.
"""

import logging
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from quorate.client.call_steps import (
    Question,
    Request,
    Service,
    Steps,
    ToAllBrokers,
    ToAnyBroker,
    ToController,
    WaitBeforeRetry,
)
from quorate.client.errors import ClusterUnreachable, RequestFailed
from quorate.client.results import ClusterStatus
from quorate_proto.v1 import admin_pb2, errors_pb2

log = logging.getLogger(__name__)

R = TypeVar("R")

PROBE_TIMEOUT_MS: Final = 2_000
"""Time that one broker has to answer which broker is the controller."""

RETRY_PAUSE_MS: Final = 100

_RETRIABLE: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # So grpc's core refuses a call before its handler sees it, while too many others wait.
    grpc.StatusCode.CANCELLED,
)
_NO_BROKER: Final = (grpc.StatusCode.UNIMPLEMENTED,)
"""What a server answers to a question that every broker understands: it is no broker. Something
else may listen where a broker was; the other brokers are asked."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call one broker. The result is its answer; grpc.RpcError is raised."""

    address: str
    service: Service
    rpc: str
    request: Message
    timeout_s: float


@dataclass(frozen=True, slots=True)
class CallAll:
    """Call several brokers at once. The result is a list of answers, with None where there was
    none."""

    calls: Sequence[Call]


@dataclass(frozen=True, slots=True)
class FindBrokers:
    """Find gRPC addresses of brokers; raises OSError or ClusterUnreachable."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for a time."""

    seconds: float


Effect = Call | CallAll | FindBrokers | Pause
Effects = Generator[Effect, Any, R]


class ClusterConnection:
    """Carries out admin calls at any broker or at the controller, and retries until a deadline.

    ``description`` is the address that the user gave, for messages. The class is not thread-safe;
    calls of one thread may overlap. Without ``retry_on_quota_violation`` no call is retried because
    of a quota, whatever its options say (Q10).
    """

    def __init__(
        self,
        description: str,
        *,
        timeout_ms: int,
        client_id: str,
        retry_on_quota_violation: bool = True,
    ) -> None:
        self._description = description
        self._timeout_ms = timeout_ms
        self._client_id = client_id
        self._retry_on_quota_violation = retry_on_quota_violation
        self._addresses: list[str] = []
        self._controller: str | None = None

    def carry_out(self, steps: Steps[R]) -> Effects[R]:
        """Carry out a call, and return its result.

        Raises:
            ClusterUnreachable: no broker answered before the deadline.
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
            case WaitBeforeRetry(time_ms=time_ms):
                if not self._retry_on_quota_violation or time_ms / 1000 >= deadline.left_s():
                    return False
                yield Pause(time_ms / 1000)
                return True
            case ToController():
                return (yield from self._on_controller(question))
            case ToAnyBroker():
                return (yield from self._on_any(question))
            case ToAllBrokers():
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

    def _on_each(self, question: ToAllBrokers) -> Effects[dict[str, Any]]:
        timeout_s = min(PROBE_TIMEOUT_MS, self._timeout_ms) / 1000
        self._fill_in(question)
        answers = yield CallAll(
            [
                Call(address, question.service, question.rpc, question.request, timeout_s)
                for address in question.addresses
            ]
        )
        return dict(zip(question.addresses, answers, strict=True))

    def _on_controller(self, question: ToController) -> Effects[Any]:
        """Return the controller's answer. After NOT_CONTROLLER, look for the controller again (F2).

        A call whose answer was lost is repeated, so what it asks for may then exist already.
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
        """Return the controller's address as the broker with the newest image knows it."""
        best: ClusterStatus | None = None
        request = admin_pb2.ClusterStatusRequest()
        for address in (yield from self._known_addresses(failures)):
            try:
                answer = yield Call(address, "admin", "ClusterStatus", request, deadline.probe_s())
            except grpc.RpcError as error:
                failures.append(_say(address, error, also_retriable=_NO_BROKER))
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
                self._addresses = list((yield FindBrokers()))
            except (OSError, ClusterUnreachable) as error:
                failures.append(str(error))
        return list(self._addresses)

    def _fill_in(self, question: Request) -> None:
        """Fill in the client's name and its timeout, in requests that have fields for them."""
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
        """Return the pause before the next attempt.

        Raises:
            ClusterUnreachable: no time is left for another attempt.
        """
        if time.monotonic() + RETRY_PAUSE_MS / 1000 >= self._end:
            reason = failures[-1] if failures else "no address is known"
            raise ClusterUnreachable(f"{what} after {self._timeout_ms} ms ({reason})")
        return Pause(RETRY_PAUSE_MS / 1000)


def _checked(answer: Any, what: str) -> Any:  # noqa: ANN401 - any answer of a controller
    if answer.error_code != errors_pb2.NONE:
        raise RequestFailed(answer.error_code, getattr(answer, "error_message", "") or what)
    return answer


def _say(
    address: str, error: grpc.RpcError, *, also_retriable: Sequence[grpc.StatusCode] = ()
) -> str:
    """Describe a failed call in one line.

    Raises:
        ClusterUnreachable: trying again cannot help.
    """
    code, details = error.code(), error.details()
    if code not in (*_RETRIABLE, *also_retriable):
        raise ClusterUnreachable(f"{address}: {code.name}: {details}") from error
    return f"{address}: {code.name}: {details}"
