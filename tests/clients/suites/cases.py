"""What became of a suite's tests."""

from dataclasses import dataclass
from typing import Literal

Result = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Case:
    """One test. ``reason``: why it was skipped, or the first line of its failure."""

    name: str
    result: Result
    reason: str = ""
    seconds: float = 0.0
