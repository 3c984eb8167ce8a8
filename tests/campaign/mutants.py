"""Checks of the product, each with a way to take it out: the campaign must notice its absence."""

from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple
from unittest import mock


class Mutant(NamedTuple):
    """One check less: ``target`` is a function, and ``answer`` what it then always returns."""

    node: str
    target: str
    answer: object


MUTANTS: Final = {
    "batch-checksum": Mutant(
        "broker", "quorate.broker.log.segments.batch_verification.batch_problem", ""
    ),
}


def without(name: str | None) -> AbstractContextManager[object]:
    """While this lasts, the check is gone."""
    if name is None:
        return nullcontext()
    chosen = MUTANTS[name]
    return mock.patch(chosen.target, return_value=chosen.answer)
