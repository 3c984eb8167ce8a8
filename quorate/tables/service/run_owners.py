"""The text that the quorum keeps as the owner of a table's run: the process, and what has failed.

The quorum keeps one text for people with each run. Everybody can read it, also while no table
service runs, so it is where the last error of a table is told. It is one of these:

- ``tables-1 host process 17 9f3c``: a run that knows of no failure;
- ``…; failed since TIME: ERROR``: the run is over, and nothing has succeeded since ``TIME``;
- ``…; tries again, failed since TIME: ERROR``: a run after such a one. The failure is over as soon
  as this run has committed something, or finds that there is nothing to do.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from quorate.client.results import Pipeline

ERROR_LENGTH_MAX: Final = 1_000
"""Longer errors are cut, as each voter keeps the text."""
_TEXT: Final = re.compile(
    r"(?P<run>.*?)(?:; (?P<again>tries again, )?failed since (?P<since>\S+): (?P<error>.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class TableFailure:
    """Why a table stands still."""

    since_ms: int
    """The time at which the first run failed after the last success, in ms since 1970."""
    error: str


@dataclass(frozen=True, slots=True)
class RunOwner:
    """The owner of a run."""

    run: str
    """The name of the service, and what tells this run from others."""
    failure: TableFailure | None = None
    tries_again: bool = False
    """True if the failure is that of runs before this one."""

    @property
    def service_id(self) -> str:
        """The name of the process."""
        return self.run.split(" ", 1)[0]

    @property
    def process(self) -> str:
        """The process, for people."""
        return self.run.rpartition(" ")[0]

    @property
    def text(self) -> str:
        """The text that the quorum keeps."""
        if self.failure is None:
            return self.run
        since = datetime.fromtimestamp(self.failure.since_ms // 1000, UTC)
        again = "tries again, " if self.tries_again else ""
        error = self.failure.error[:ERROR_LENGTH_MAX]
        return f"{self.run}; {again}failed since {since:%Y-%m-%dT%H:%M:%SZ}: {error}"


def parse_owner(text: str) -> RunOwner:
    """Return the owner that a text tells of."""
    found = _TEXT.fullmatch(text)
    assert found is not None
    if found["error"] is None:
        return RunOwner(found["run"])
    try:
        since = datetime.fromisoformat(found["since"])
    except ValueError:
        return RunOwner(text)
    failure = TableFailure(round(since.timestamp() * 1000), found["error"])
    return RunOwner(found["run"], failure, tries_again=bool(found["again"]))


def failure_of(state: Pipeline, lag: int | None) -> TableFailure | None:
    """Return why the table stands still, or None if it does not.

    Args:
        state: the pipeline of the table.
        lag: how many offsets are not in the table; None if that is not known.
    """
    owner = parse_owner(state.owner)
    has_committed = state.commit_epoch == state.run_epoch
    if owner.tries_again and (has_committed or lag == 0):
        return None
    return owner.failure
