"""Whether calls on one register can be put in an order that explains every answer.

After Wing and Gong, with the memory of Lowe: take any call that no unexplained answer precedes, see
whether the register could have answered so, go on from there, and never look twice at the same set
of calls and the same state. It knows times and answers alone, no offsets.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.support.history import Kind, Op, Outcome

FOR_EVER = 1 << 62


class Register(NamedTuple):
    version: int = 0
    token: int = 0


def is_linearizable(ops: Sequence[Op]) -> bool:
    """``ops`` on one register, in any order.

    An unknown outcome may take effect at any time after its call, or never.
    """
    calls = sorted(
        (op for op in ops if op.outcome is not Outcome.NOT_APPLIED and not _says_nothing(op)),
        key=lambda op: op.invoked,
    )
    answered = sum(1 << i for i, op in enumerate(calls) if op.outcome is not Outcome.UNKNOWN)
    seen: set[tuple[int, Register]] = set()
    todo = [(0, Register())]
    while todo:
        done, register = todo.pop()
        if done & answered == answered:
            return True
        for number in _may_be_next(calls, done):
            after = _answered(calls[number], register)
            if after is not None and (step := (done | 1 << number, after)) not in seen:
                seen.add(step)
                todo.append(step)
    return False


def _says_nothing(op: Op) -> bool:
    return op.kind is Kind.READ and op.outcome is Outcome.UNKNOWN


def _may_be_next(calls: Sequence[Op], done: int) -> Iterator[int]:
    """Calls that begin before the first answer that is still to be explained."""
    first_answer = FOR_EVER
    number = (~done & (done + 1)).bit_length() - 1  # The lowest that is not done.
    for at in range(number, len(calls)):
        if calls[at].invoked > first_answer:
            return
        if not done >> at & 1:
            if calls[at].outcome is not Outcome.UNKNOWN:
                first_answer = min(first_answer, calls[at].returned)
            yield at


def _answered(op: Op, register: Register) -> Register | None:
    """The register after the call, if it answered so; else None."""
    if op.kind is Kind.READ:
        return register if (op.version, op.token) == register else None
    if op.outcome is Outcome.REFUSED:
        return register if op.expected != register.version else None
    if op.expected != register.version:
        return None
    return Register(register.version + 1, op.token)
