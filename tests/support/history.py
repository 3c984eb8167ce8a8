"""Checks that what clients were told agrees with what the log holds.

Pure: operations and effects in, violations out, in words. Every check has a history that it must
refuse (``tests/unit/quorum/test_history_checks.py``). The metadata offset gives everything one
order, so most of it is comparing; ``tests.support.linearizability`` decides the same about single
registers without trusting offsets.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple


class Kind(Enum):
    WRITE = "write"
    """Unconditional, under a key of its own."""
    CAS = "compare-and-set"
    READ = "read"
    FENCE = "read offset"
    """Asks for an offset that covers everything answered before; reads nothing there."""


class Outcome(Enum):
    OK = "ok"
    REFUSED = "refused"
    """A compare-and-set that found another version."""
    NOT_APPLIED = "surely not applied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One call of a client. A register begins at version 0 with token 0."""

    kind: Kind
    key: str
    invoked: int
    returned: int
    """Times are numbers that grow; of an unknown outcome the time does not matter."""
    outcome: Outcome
    offset: int = 0
    """The offset at which it was applied; a read has seen everything up to this offset."""
    token: int = 0
    """The value that it writes or read. No two operations write the same."""
    expected: int = 0
    """Version that a compare-and-set wants to find."""
    version: int = 0
    """Version that it made, or that was read."""

    @property
    def writes(self) -> bool:
        return self.kind in (Kind.WRITE, Kind.CAS)


class Effect(NamedTuple):
    """One write that took effect, as the log has it."""

    offset: int
    key: str
    token: int
    version: int


class Verdict(NamedTuple):
    violations: list[str]
    lost: int
    twice: int
    resolved: int
    """Outcomes that were unknown to the client, and that the log shows to be applied."""


def check_against_log(ops: Sequence[Op], effects: Sequence[Effect]) -> Verdict:
    """``effects`` in the order of the log."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for effect in effects:
        offsets[effect.token].append(effect.offset)
    twice = [f"{token} is applied at {at}" for token, at in offsets.items() if len(at) > 1]
    lost = _lost(ops, offsets)
    unknown = [op for op in ops if op.writes and op.outcome is Outcome.UNKNOWN]
    violations = [
        *twice,
        *lost,
        *_never_meant(ops, offsets),
        *_out_of_order(ops, offsets),
        *_wrong_registers(ops, effects),
    ]
    resolved = sum(op.token in offsets for op in unknown)
    return Verdict(violations, len(lost), len(twice), resolved)


def _lost(ops: Iterable[Op], offsets: Mapping[int, list[int]]) -> list[str]:
    return [
        f"{op} was acknowledged, and the log has it at {offsets.get(op.token, 'no offset')}"
        for op in ops
        if op.writes and op.outcome is Outcome.OK and op.offset not in offsets.get(op.token, ())
    ]


def _never_meant(ops: Iterable[Op], offsets: Mapping[int, list[int]]) -> list[str]:
    refused = (Outcome.REFUSED, Outcome.NOT_APPLIED)
    by_token = {op.token: op for op in ops if op.writes}
    unwritten = [f"nobody wrote {token}" for token in offsets if token not in by_token]
    return unwritten + [
        f"{op} was refused, and the log has it at {offsets[op.token]}"
        for op in by_token.values()
        if op.outcome in refused and op.token in offsets
    ]


def _out_of_order(ops: Iterable[Op], offsets: Mapping[int, list[int]]) -> list[str]:
    """Find operations that began after another one was answered, but are not after it in the
    log."""
    events: list[tuple[int, int, Op, int]] = []
    for op in ops:
        at = _position(op, offsets)
        if at is None:
            continue
        events.append((op.invoked, 1, op, at))
        if op.outcome is not Outcome.UNKNOWN:
            events.append((op.returned, 0, op, at))
    found: list[str] = []
    answered, newest = 0, "nothing"
    for _, is_call, op, at in sorted(events, key=lambda event: event[:2]):
        if not is_call:
            answered, newest = max((answered, newest), (at, str(op)))
        elif at < answered + op.writes:
            found.append(f"{op} is at {at}, but {newest} was answered before it began")
    return found


def _position(op: Op, offsets: Mapping[int, list[int]]) -> int | None:
    """Its place in the log; None if it has none."""
    if op.outcome is Outcome.UNKNOWN:
        return offsets[op.token][0] if op.writes and op.token in offsets else None
    return None if op.outcome is Outcome.NOT_APPLIED else op.offset


def _wrong_registers(ops: Iterable[Op], effects: Iterable[Effect]) -> list[str]:
    """Versions of a register follow one another; who compared or read found what was there."""
    timelines: dict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        timelines[effect.key].append(effect)
    found = [
        f"{key}: version {after.version} at {after.offset} follows {before.version}"
        for key, timeline in timelines.items()
        for before, after in pairwise([Effect(0, key, 0, 0), *timeline])
        if after.version != before.version + 1
    ]
    for op in ops:
        told = op.outcome in (Outcome.OK, Outcome.REFUSED)
        if not told or op.kind in (Kind.WRITE, Kind.FENCE):
            continue
        # A compare-and-set meets the state before it, a read sees the state at its offset.
        upto = op.offset - (op.kind is Kind.CAS)
        there = _state_at(timelines[op.key], upto)
        if op.kind is Kind.READ:
            if (op.version, op.token) != (there.version, there.token):
                found.append(f"{op} read something else than {there}")
        elif (op.expected == there.version) is not (op.outcome is Outcome.OK):
            found.append(f"{op} met {there}")
    return found


def _state_at(timeline: list[Effect], offset: int) -> Effect:
    at = bisect_right(timeline, offset, key=lambda effect: effect.offset)
    return timeline[at - 1] if at else Effect(0, "", 0, 0)


# --- watches ------------------------------------------------------------------------------------


class Started(NamedTuple):
    """The watch was asked for everything from here on; 0: a snapshot first."""

    offset: int


class Jumped(NamedTuple):
    """A snapshot came: the state after this offset."""

    offset: int


Seen = int | Started | Jumped
"""The observations of a watcher: offsets of transactions, and how it came to them."""


def check_watch(seen: Iterable[Seen], log: Sequence[int]) -> list[str]:
    """Violations in what one watcher saw, over all its connections.

    ``log``: offsets of all transactions there are. A watcher gets each from where it stands, in
    order and once; only a snapshot may take it forward, and never back.
    """
    found: list[str] = []
    stands = 0
    for item in seen:
        if isinstance(item, Started):
            stands = max(stands, item.offset - 1)
        elif isinstance(item, Jumped):
            # Of no-ops a snapshot says nothing: it may stand before them.
            if bisect_right(log, item.offset) < bisect_right(log, stands):
                found.append(f"a snapshot of {item.offset} after {stands}")
            stands = max(stands, item.offset)
        else:
            if item <= stands:
                found.append(f"{item} comes after {stands}: repeated, or out of order")
            elif (skipped := _between(log, stands, item)) or log[bisect_right(log, stands)] != item:
                found.append(f"{item} comes after {stands}: {skipped or 'it is not in the log'}")
            stands = max(stands, item)
    return found


def _between(log: Sequence[int], low: int, high: int) -> str:
    first = bisect_right(log, low)
    last = bisect_right(log, high - 1)
    return f"{log[first]} to {log[last - 1]} are skipped" if last > first else ""
