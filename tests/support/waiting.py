"""Lets tests wait: until something holds, with a deadline, or for time alone, saying why.

Nothing else in the tests sleeps, but for code that Spark runs in processes of its own. On virtual
time, which costs nothing, tests let it pass with ``virtual_time.pass_time``.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, overload

from quorate.client.errors import QuorateError

TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02
_ASYNC_POLL_S: Final = 0.005

T = TypeVar("T")
What = str | Callable[[], str]
"""The words for what is waited for; or a function that says them, and all that explains why the
wait was in vain, once it was."""


def wait_until(condition: Callable[[], T | None], what: What, *, timeout_s: float = TIMEOUT_S) -> T:
    """The condition's answer, once it is true. Errors of Quorate's clients count as no.

    Raises:
        AssertionError: the condition did not hold in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(QuorateError):
            if found := condition():
                return found
        if time.monotonic() > deadline_s:
            raise _in_vain(what, timeout_s)
        time.sleep(_POLL_S)


@overload
async def async_wait_until(
    condition: Callable[[], Awaitable[T | None]], what: What, *, timeout_s: float = TIMEOUT_S
) -> T: ...


@overload
async def async_wait_until(
    condition: Callable[[], T | None], what: What, *, timeout_s: float = TIMEOUT_S
) -> T: ...


async def async_wait_until(
    condition: Callable[[], object], what: What, *, timeout_s: float = TIMEOUT_S
) -> object:
    """Wait as ``wait_until`` does, while other tasks go on; the time is the event loop's.

    The condition may be a coroutine function.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            while True:
                with contextlib.suppress(QuorateError):
                    found = condition()
                    if inspect.isawaitable(found):
                        found = await found
                    if found:
                        return found
                await asyncio.sleep(_ASYNC_POLL_S)
    except TimeoutError:
        if limit.expired():
            raise _in_vain(what, timeout_s) from None
        raise


def _in_vain(what: What, timeout_s: float) -> AssertionError:
    said = what if isinstance(what, str) else what()
    return AssertionError(f"waited {timeout_s:g} s in vain for {said}")


def let_time_pass(seconds: float, why: str) -> None:
    """Wait, where no condition says that it has been long enough.

    ``why``: what it is that takes time, or must not happen meanwhile.
    """
    assert why
    time.sleep(seconds)


async def async_let_time_pass(seconds: float, why: str) -> None:
    """Let time pass as ``let_time_pass`` does, while other tasks go on."""
    assert why
    await asyncio.sleep(seconds)
