"""Channels to a cluster's brokers: which are there, which one is the controller, when to ask again.

Any gRPC address once seen is kept as a way back in, so that a client outlives its bootstrap broker.
"""

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import grpc

from quorate.client.errors import ClusterUnreachable
from quorate.client.results import ClusterStatus
from quorate_proto.v1 import admin_pb2, admin_pb2_grpc, errors_pb2, replication_pb2_grpc

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)
"""A proxy of the environment must not get between; descriptions of large clusters are large."""

PROBE_TIMEOUT_MS: Final = 2_000
"""How long one broker may take to say who the controller is."""

RETRY_PAUSE_MS: Final = 100

ASKED_AT_ONCE_MAX: Final = 16

_RETRIABLE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class BrokerStubs:
    """The services of one broker that the client uses, over one channel."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.admin = admin_pb2_grpc.AdminStub(self._channel)
        self.range_read = replication_pb2_grpc.RangeReadStub(self._channel)

    def close(self) -> None:
        self._channel.close()


class ClusterConnection:
    """Calls to any broker, or to the controller, retried until a deadline.

    ``discover`` returns gRPC addresses (``host:port``) of brokers, from whatever the user gave.
    Not thread-safe.
    """

    def __init__(self, discover: Callable[[], Iterable[str]], *, description: str) -> None:
        self._discover = discover
        self._description = description
        self._addresses: list[str] = []
        self._stubs: dict[str, BrokerStubs] = {}
        self._controller: str | None = None

    def close(self) -> None:
        for stubs in self._stubs.values():
            stubs.close()
        self._stubs.clear()

    def forget_controller(self) -> None:
        """The next call to the controller looks for it afresh."""
        self._controller = None

    def on_any(self, call: Callable[[BrokerStubs, float], Answer], *, timeout_ms: int) -> Answer:
        """The answer of the first broker that gives one; ``call(stubs, timeout_s)``.

        Raises:
            ClusterUnreachable: nobody answered before the deadline.
        """
        deadline = _Deadline(timeout_ms)
        while True:
            failures: list[str] = []
            for address in self._known_addresses(failures):
                try:
                    return call(self._stub(address), deadline.probe_s())
                except grpc.RpcError as error:
                    failures.append(_say(address, error))
            self._addresses.clear()
            deadline.pause_or_raise(f"no broker of {self._description} answers", failures)

    def on_each(
        self,
        addresses: Iterable[str],
        call: Callable[[BrokerStubs, float], Answer],
        *,
        timeout_ms: int,
    ) -> dict[str, Answer | None]:
        """The answers of the brokers at ``addresses``, asked at once; None: it gave none."""
        timeout_s = min(PROBE_TIMEOUT_MS, timeout_ms) / 1000

        def ask(stubs: BrokerStubs) -> Answer | None:
            try:
                return call(stubs, timeout_s)
            except grpc.RpcError as error:
                log.info("%s", error)
                return None

        stubs = [self._stub(address) for address in addresses]
        with ThreadPoolExecutor(max(1, min(len(stubs), ASKED_AT_ONCE_MAX))) as pool:
            answers = list(pool.map(ask, stubs))
        return {one.address: answer for one, answer in zip(stubs, answers, strict=True)}

    def on_controller(
        self,
        call: Callable[[BrokerStubs, float], Answer],
        error_code: Callable[[Answer], int],
        *,
        timeout_ms: int,
    ) -> Answer:
        """The controller's answer; NOT_CONTROLLER means look again (F2).

        A call whose answer was lost is made again: what it asks for may then exist already.

        Raises:
            ClusterUnreachable: no controller answered before the deadline.
        """
        deadline = _Deadline(timeout_ms)
        while True:
            failures: list[str] = []
            address = self._controller or self._find_controller(deadline, failures)
            if address is not None:
                try:
                    answer = call(self._stub(address), deadline.left_s())
                    if error_code(answer) != errors_pb2.NOT_CONTROLLER:
                        self._controller = address
                        return answer
                    failures.append(f"{address}: NOT_CONTROLLER")
                except grpc.RpcError as error:
                    failures.append(_say(address, error))
            self._controller = None
            deadline.pause_or_raise(f"{self._description} has no reachable controller", failures)

    def _find_controller(self, deadline: "_Deadline", failures: list[str]) -> str | None:
        """The controller's address as the broker with the newest image knows it."""
        best: ClusterStatus | None = None
        for address in self._known_addresses(failures):
            try:
                status = _status(self._stub(address), deadline.probe_s())
            except grpc.RpcError as error:
                failures.append(_say(address, error))
                continue
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

    def _known_addresses(self, failures: list[str]) -> list[str]:
        if not self._addresses:
            try:
                self._addresses = list(self._discover())
            except (OSError, ClusterUnreachable) as error:
                failures.append(str(error))
        return list(self._addresses)

    def _stub(self, address: str) -> BrokerStubs:
        if address not in self._stubs:
            self._stubs[address] = BrokerStubs(address)
        return self._stubs[address]


class _Deadline:
    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._end = time.monotonic() + timeout_ms / 1000

    def left_s(self) -> float:
        return max(0.05, self._end - time.monotonic())

    def probe_s(self) -> float:
        return min(PROBE_TIMEOUT_MS / 1000, self.left_s())

    def pause_or_raise(self, what: str, failures: list[str]) -> None:
        if time.monotonic() + RETRY_PAUSE_MS / 1000 >= self._end:
            reason = failures[-1] if failures else "no address is known"
            raise ClusterUnreachable(f"{what} after {self._timeout_ms} ms ({reason})")
        time.sleep(RETRY_PAUSE_MS / 1000)


def _status(stubs: BrokerStubs, timeout_s: float) -> ClusterStatus:
    return ClusterStatus.from_proto(
        stubs.admin.ClusterStatus(admin_pb2.ClusterStatusRequest(), timeout=timeout_s)
    )


def _say(address: str, error: grpc.RpcError) -> str:
    """One line about a failed call.

    Raises:
        grpc.RpcError: the call itself if trying again cannot help.
    """
    code, details = error.code(), error.details()
    if code not in _RETRIABLE:
        raise ClusterUnreachable(f"{address}: {code.name}: {details}") from error
    return f"{address}: {code.name}: {details}"
