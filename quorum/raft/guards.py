"""The pinned version of the library, and the filter over the messages that reach it.

The guards override private names of PySyncObj, so they fit one version only: start-up checks the
version and the hash of ``syncobj.py``. The filter is pure: it says how an incoming message must be
changed so that the library's own handling of it is safe.
"""

import hashlib
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pysyncobj.syncobj

from quorate.quorum.raft.network.raft_frames import Message
from quorate.quorum.raft.storage.journal import RaftEntry

LIBRARY_VERSION: Final = "0.3.17"
LIBRARY_SHA256: Final = "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4"


class LibraryMismatch(RuntimeError):
    """PySyncObj is not the build that the guards were written for."""


class SafetyViolation(RuntimeError):
    """A message contradicts what is committed: this voter must stop, not guess."""


def check_library() -> None:
    """Refuse to run with another PySyncObj than the pinned one.

    Raises:
        LibraryMismatch: says what was found and what to do.
    """
    found = metadata.version("pysyncobj")
    if found != LIBRARY_VERSION:
        raise LibraryMismatch(
            f"PySyncObj {found} is installed, the quorum needs {LIBRARY_VERSION}: "
            f"pip install pysyncobj=={LIBRARY_VERSION}"
        )
    source = Path(pysyncobj.syncobj.__file__)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    if digest != LIBRARY_SHA256:
        raise LibraryMismatch(
            f"{source} differs from the released {LIBRARY_VERSION} (SHA-256 {digest[:16]}…, not "
            f"{LIBRARY_SHA256[:16]}…): pip install --force-reinstall pysyncobj=={LIBRARY_VERSION}"
        )


class Log(Protocol):
    """The part of the voter's log that the filter needs."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    def term_at(self, index: int) -> int | None: ...


class FilteredAppend(NamedTuple):
    """An append_entries message as the library may handle it.

    ``verified_index`` is the index up to which our log is now known to be the leader's; an
    acknowledgement and the commit index must not go beyond. It is None if the previous entry does
    not match: then nothing is known.
    """

    message: Message
    verified_index: int | None


def filter_append(message: Message, log: Log, commit_index: int) -> FilteredAppend:
    """Make an append_entries with entries (or none, a heartbeat) harmless if it is late.

    The library deletes everything behind the previous entry and appends what came (P4), so a late
    duplicate removes acknowledged entries. Here, entries that are in the log already are taken off
    the message, so that only a real conflict truncates; and the commit index is limited to what
    this message proves (Raft §5.3: the index of the last *new* entry).

    Raises:
        SafetyViolation: the conflict is below the commit index.
    """
    previous: int = message["prevLogIdx"]
    entries: list[RaftEntry] = message["entries"]
    if log.term_at(previous) != message["prevLogTerm"]:
        if previous < log.first_index and entries and entries[-1][1] > log.first_index:
            return _without_compacted(message, log, commit_index)
        if log.first_index <= previous <= commit_index:
            raise SafetyViolation(
                f"the leader of term {message['term']} has another entry {previous}, "
                f"but everything up to {commit_index} is committed"
            )
        return FilteredAppend(message, None)
    return _trimmed(message, previous, entries, log, commit_index)


def _trimmed(
    message: Message, previous: int, entries: list[RaftEntry], log: Log, commit_index: int
) -> FilteredAppend:
    known = 0
    for _, index, term in entries:
        if log.term_at(index) != term:
            break
        known += 1
    last_known = previous + known
    new = entries[known:]
    verified = entries[-1][1] if entries else previous
    filtered = {**message, "commit_index": min(message["commit_index"], verified)}
    if new:
        if last_known < log.last_index and last_known < commit_index:
            raise SafetyViolation(
                f"the leader of term {message['term']} would replace entry {last_known + 1}, "
                f"but everything up to {commit_index} is committed"
            )
        filtered["prevLogIdx"] = last_known
    else:
        # Nothing is new. With our own last entry as the previous one, nothing is truncated.
        filtered["prevLogIdx"] = log.last_index
    filtered["prevLogTerm"] = log.term_at(filtered["prevLogIdx"])
    filtered["entries"] = new
    return FilteredAppend(filtered, verified)


def _without_compacted(message: Message, log: Log, commit_index: int) -> FilteredAppend:
    """Drop entries below our snapshot: they are committed, so the leader has the same ones."""
    entries: list[RaftEntry] = message["entries"]
    first = log.first_index
    kept = [entry for entry in entries if entry[1] > first]
    previous_term = log.term_at(first)
    changed = {**message, "prevLogIdx": first, "prevLogTerm": previous_term, "entries": kept}
    return _trimmed(changed, first, kept, log, commit_index)


def conflict_index(log: Log, index: int, commit_index: int) -> int:
    """Return where the leader should try next, after our entry at ``index`` had another term (P7).

    The whole term is skipped, and not one entry per round, but never what is committed.
    """
    term = log.term_at(index)
    while index - 1 > max(commit_index, log.first_index) and log.term_at(index - 1) == term:
        index -= 1
    return index


class Vote(NamedTuple):
    """The values that decide a pre-vote."""

    term: int
    last_log_term: int
    last_log_index: int


def grants_pre_vote(asked: Vote, own: Vote, *, leader_heard_recently: bool) -> bool:
    """Return whether we would vote for the candidate if it stood (P8).

    While we hear from a leader we would not: a voter that was only cut off or restarted must not
    unseat it.
    """
    return (
        not leader_heard_recently
        and asked.term >= own.term
        and (asked.last_log_term, asked.last_log_index) >= (own.last_log_term, own.last_log_index)
    )
