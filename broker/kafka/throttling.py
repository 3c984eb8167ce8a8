"""Requests run, and what they cost their clients counted against their quotas (KIP-13, KIP-124)."""

from collections.abc import Coroutine
from typing import Any, Final

from broker.kafka.requests import Api, Buffers, RequestContext
from broker.quota.client_usage import NO_LIMITS, ClientUsage, Limits, Timed
from broker.quota.throttle import tell

_PRODUCE: Final = 0
_FETCH: Final = 1


async def throttled(
    usage: ClientUsage,
    api: Api,
    context: RequestContext,
    frame_bytes: int,
    handling: Coroutine[Any, Any, Buffers],
) -> Buffers:
    """The answer that ``handling`` gives; it tells the longest of all throttle times (Q11).

    Bytes are those of whole produce requests and whole fetch answers. A fetch that exceeds its
    quota is still answered in full: its client waits afterwards, which comes to the same rate.
    """
    limits = usage.of(context.principal.name, context.client_id)
    if limits is NO_LIMITS:
        answer = await handling
    else:
        answer = await _counted(usage, limits, api, context, frame_bytes, handling)
    time_ms = context.throttle.time_ms
    if time_ms and answer and (place := api.place_of_throttle(context.version)) is not None:
        tell(answer, place, time_ms)
    return answer


async def _counted(
    usage: ClientUsage,
    limits: Limits,
    api: Api,
    context: RequestContext,
    frame_bytes: int,
    handling: Coroutine[Any, Any, Buffers],
) -> Buffers:
    if limits.time is None:
        answer = await handling
    else:
        timed = Timed(handling)
        answer = await timed
        context.throttle.at_least(limits.time.use(timed.spent_ms, usage.now_ms()))
    if api.key == _PRODUCE and limits.produced is not None:
        context.throttle.at_least(limits.produced.use(frame_bytes, usage.now_ms()))
    elif api.key == _FETCH and limits.fetched is not None:
        size = sum(map(len, answer))
        context.throttle.at_least(limits.fetched.use(size, usage.now_ms()))
    return answer
