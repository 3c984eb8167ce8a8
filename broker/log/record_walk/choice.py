"""Chooses the walk: the machine code if it runs here, else Python."""

import functools
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from quorate.broker.log.record_walk.layout import WalkAnswer, WalkQuestion
from quorate.broker.log.record_walk.machine_walk import MachineWalk, NoMachineCode, mapped_code
from quorate.broker.log.record_walk.python_walk import PythonWalk

log = logging.getLogger(__name__)

RecordWalk: TypeAlias = Callable[[memoryview, int, WalkQuestion], WalkAnswer]
"""A walk over the records that begin at a position of a buffer. One thread may use it."""

_TRIAL: Final = bytes.fromhex("0e000000010278000e0000020102780016000204020101027802026b0279")
"""Three records: two without a key and headers, and one with both. The last one lies about its
length."""


def record_walk(*, keeps_lock: bool) -> RecordWalk:
    """Return a walk. ``keeps_lock`` says that it will be used for few steps at a time."""
    code = _code()
    return PythonWalk() if code is None else MachineWalk(code, keeps_lock=keeps_lock)


def is_compiled() -> bool:
    """Return whether walks are machine code, and so take nanoseconds per record."""
    return _code() is not None


@functools.cache
def _code() -> int | None:
    """Return the address of machine code that answers as Python does, or None."""
    try:
        code = mapped_code()
        machine = MachineWalk(code, keeps_lock=True)
        if [machine(*each) for each in _trials()] != [PythonWalk()(*each) for each in _trials()]:
            raise NoMachineCode("the machine code answers otherwise than Python")
    except NoMachineCode as reason:
        log.warning(
            "produced records are validated in Python, which takes about 2 microseconds per "
            "record: %s",
            reason,
        )
        return None
    return code


def _trials() -> list[tuple[memoryview, int, WalkQuestion]]:
    records = memoryview(_TRIAL)
    question = WalkQuestion(
        size=16, record_count=2, base_timestamp=1000, earliest=0, latest=1000, needs_keys=0, steps=9
    )
    return [
        (records, 0, question),
        (records, 0, question._replace(needs_keys=1)),
        (records, 0, question._replace(latest=999)),
        (records, 0, question._replace(record_count=3)),
        (records, 0, question._replace(steps=1)),
        (records, 0, question._replace(size=len(records), record_count=3)),
    ]
