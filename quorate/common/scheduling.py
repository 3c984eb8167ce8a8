"""This module sets how the kernel's scheduler treats a process among others."""

import os
from contextlib import suppress
from enum import StrEnum
from typing import Final, Literal

_THREADS: Final = "/proc/{}/task"


class SchedulingPolicy(StrEnum):
    """The policy says what happens when something arrives for a process and all processors are
    busy."""

    BATCH = "batch"
    """It waits until a processor is free or whatever runs there has had its turn. By then there may
    be more for it, which it does together."""
    NORMAL = "normal"
    """It may interrupt what runs, so it does one thing at a time, at once."""


def schedule_as(policy: SchedulingPolicy, process: int | Literal["self"] = "self") -> None:
    """Set the policy of all threads of a process that have the system's default. Those that they
    start later have it too.

    A policy that somebody gave the process stays, such as a real-time one. ``NORMAL`` leaves the
    process as it was started. Systems other than Linux know nothing else.

    Raises:
        OSError: the system does not allow it.
    """
    if policy is SchedulingPolicy.BATCH and hasattr(os, "SCHED_BATCH"):
        for thread_id in os.listdir(_THREADS.format(process)):
            with suppress(ProcessLookupError):  # It may have ended meanwhile.
                if os.sched_getscheduler(int(thread_id)) == os.SCHED_OTHER:
                    os.sched_setscheduler(int(thread_id), os.SCHED_BATCH, os.sched_param(0))
