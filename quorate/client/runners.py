"""The two ways to carry out the effects of ``ClusterConnection``: blocking, and in an event
loop."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

import grpc
import grpc.aio

from quorate.client.admin_connection import Call, CallAll, Effect, Effects, FindBrokers, Pause
from quorate.client.errors import ClusterUnreachable
from quorate.client.grpc_channels import BrokerStubs, open_async_channel, open_channel
from quorate.client.security import ClientSecurity

log = logging.getLogger(__name__)

R = TypeVar("R")

Addresses = Callable[[], Iterable[str]]
"""Returns gRPC addresses of brokers, from what the user gave. It may block, and raises as
``FindBrokers``."""

ASKED_AT_ONCE_MAX: Final = 16

_EXPECTED: Final = (grpc.RpcError, OSError, ClusterUnreachable)


class _Outcome(NamedTuple):
    """The result of an effect: a value or an error."""

    answer: Any = None
    error: Exception | None = None

    def resume(self, effects: Effects[R]) -> Effect:
        """Resume the generator and return the next effect; StopIteration holds the result."""
        return effects.send(self.answer) if self.error is None else effects.throw(self.error)


class BlockingRunner:
    """Carries out effects in the calling thread. It is not thread-safe."""

    def __init__(self, discover: Addresses, security: ClientSecurity) -> None:
        self._discover = discover
        self._security = security
        self._stubs: dict[str, BrokerStubs] = {}

    def close(self) -> None:
        for stubs in self._stubs.values():
            stubs.close()
        self._stubs.clear()

    def run(self, effects: Effects[R]) -> R:
        """Carry out all effects, and return the result."""
        outcome = _Outcome()
        while True:
            try:
                effect = outcome.resume(effects)
            except StopIteration as end:
                result: R = end.value
                return result
            try:
                outcome = _Outcome(self._do(effect))
            except _EXPECTED as error:
                outcome = _Outcome(error=error)

    def _do(self, effect: Effect) -> Any:  # noqa: ANN401 - each effect has its own
        match effect:
            case Call():
                return self._call(effect)
            case CallAll():
                for call in effect.calls:  # Stubs are made in this thread.
                    self._stub(call.address)
                with ThreadPoolExecutor(max(1, min(len(effect.calls), ASKED_AT_ONCE_MAX))) as pool:
                    return list(pool.map(self._attempt, effect.calls))
            case FindBrokers():
                return list(self._discover())
            case Pause():
                time.sleep(effect.seconds)
                return None

    def _attempt(self, call: Call) -> Any:  # noqa: ANN401 - any answer
        try:
            return self._call(call)
        except grpc.RpcError as error:
            log.info("%s: %s", call.address, error)
            return None

    def _call(self, call: Call) -> Any:  # noqa: ANN401 - any answer
        return _method(self._stub(call.address), call)(call.request, timeout=call.timeout_s)

    def _stub(self, address: str) -> BrokerStubs:
        if address not in self._stubs:
            self._stubs[address] = BrokerStubs(address, open_channel(address, self._security))
        return self._stubs[address]


class AsyncRunner:
    """Carries out effects in the running event loop; many calls may run at once."""

    def __init__(self, discover: Addresses, security: ClientSecurity) -> None:
        self._discover = discover
        self._security = security
        self._stubs: dict[str, BrokerStubs] = {}

    async def close(self) -> None:
        for stubs in self._stubs.values():
            await stubs.close()
        self._stubs.clear()

    async def run(self, effects: Effects[R]) -> R:
        """Carry out all effects, and return the result."""
        outcome = _Outcome()
        while True:
            try:
                effect = outcome.resume(effects)
            except StopIteration as end:
                result: R = end.value
                return result
            try:
                outcome = _Outcome(await self._do(effect))
            except _EXPECTED as error:
                outcome = _Outcome(error=error)

    async def _do(self, effect: Effect) -> Any:  # noqa: ANN401 - each effect has its own
        match effect:
            case Call():
                return await self._call(effect)
            case CallAll():
                return await asyncio.gather(*map(self._attempt, effect.calls))
            case FindBrokers():
                return list(await asyncio.to_thread(self._discover))
            case Pause():
                return await asyncio.sleep(effect.seconds)

    async def _attempt(self, call: Call) -> Any:  # noqa: ANN401 - any answer
        try:
            return await self._call(call)
        except grpc.RpcError as error:
            log.info("%s: %s", call.address, error)
            return None

    async def _call(self, call: Call) -> Any:  # noqa: ANN401 - any answer
        if call.address not in self._stubs:
            self._stubs[call.address] = BrokerStubs(
                call.address, open_async_channel(call.address, self._security)
            )
        return await _method(self._stubs[call.address], call)(call.request, timeout=call.timeout_s)


def _method(stubs: BrokerStubs, call: Call) -> Any:  # noqa: ANN401 - of generated code
    return getattr(stubs.admin if call.service == "admin" else stubs.range_read, call.rpc)
