"""Finds out whether this voter's data folder is an old copy, before the voter takes part.

Raft holds only while nobody forgets. A folder that was put back from an earlier copy, or a disk
that lost its last minutes, has forgotten votes and acknowledged entries, under the directory id
that all others expect. Nothing on that disk shows it, but the other voters do:

* Each voter keeps the most that every other one has promised to it (``storage.promises``), and its
  hello tells the other one. A voter whose disk has less is stale: it leaves the quorum at once and
  for good, as a wiped one does.
* A voter that was started takes no part before it has heard the hellos of all other voters, or has
  waited for them for two election timeouts.
* A voter that is down cannot tell what it was promised. Therefore hellos also tell the sender's
  term and what it knows to be committed. A voter that was just started gives no vote in a term that
  it has heard of, and no voter votes for one that lacks what is committed, nor stands if it lacks
  that itself. Where nothing was forgotten, no election is lost by this: whoever can be elected has
  all that is committed.

A promise is on the disk of the voter that made it before it is sent. So a voter that crashed, and
lost what it had not promised yet, is not stale.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from quorate.quorum.raft.leaving import VoterStale
from quorate.quorum.raft.storage.journal import RaftJournal
from quorate.quorum.raft.storage.promises import Promise
from quorate_proto.v1.raft_pb2 import RaftHello, RaftPromise

PATIENCE_TIMEOUTS: Final = 2
"""A voter that was started waits for so many election timeouts for the others. All that are up have
introduced themselves by then.
"""


class LogEnd(NamedTuple):
    """A place in the log, in the order in which Raft compares logs."""

    last_term: int
    last_index: int


class TrustedFolder:
    """A data folder that is taken for what it was: that of a voter of which nobody else knows."""

    is_vouched = True
    """Whether this voter may take part, as far as its folder goes."""
    committed = LogEnd(0, 0)
    """The furthest entry that was heard to be committed."""
    spent_term = 0
    """The newest term in which this voter may have voted without remembering it."""

    def tell(self, hello: RaftHello, receiver: int) -> None:
        """Add to our hello what its receiver has to know."""

    def heard(self, hello: RaftHello) -> None:
        """Take in what another voter tells.

        Raises:
            VoterStale: this voter has promised it more than the folder holds.
        """

    def vouch(self) -> None:
        """Take part from now on: all others were heard."""

    def tick(self, now_s: float) -> None:
        """Take part without those that were not heard for a while."""


class CheckedFolder(TrustedFolder):
    """A data folder that may be an old copy of itself."""

    def __init__(
        self,
        voter_id: int,
        directory_id: bytes,
        journal: RaftJournal,
        patience_s: float,
        remember_stale: Callable[[str], None],
    ) -> None:
        """Create the check. ``remember_stale`` has what is wrong with the folder on disk when it
        returns, so that the folder is refused at the next start, when perhaps nobody else is up.
        """
        self.is_vouched = False
        self._voter_id = voter_id
        self._directory_id = directory_id
        self._journal = journal
        self._patience_s = patience_s
        self._remember_stale = remember_stale
        self._started_s: float | None = None

    def tell(self, hello: RaftHello, receiver: int) -> None:
        journal = self._journal
        promise = journal.promises.get(receiver)
        if promise is not None:
            hello.promise.CopyFrom(RaftPromise(**promise._asdict()))
        hello.term = journal.getCurrentTerm()
        commit_index = journal.getRaftCommitIndex()
        commit_term = journal.term_at(commit_index)
        if commit_term is not None:
            hello.commit_index, hello.commit_term = commit_index, commit_term

    def heard(self, hello: RaftHello) -> None:
        lacks = self._lacks(hello)
        if lacks:
            detail = (
                f"the data folder of voter {self._voter_id} is older than what this voter has "
                f"promised: {lacks}. It is an old copy, or its disk has lost writes. Put the "
                f"newest folder in its place; or, if that cannot be, empty it, remove the voter "
                f"with `quorate quorum remove-voter {self._voter_id}` and add it again"
            )
            self._remember_stale(detail)
            raise VoterStale(detail)
        self.committed = max(self.committed, LogEnd(hello.commit_term, hello.commit_index))
        if not self.is_vouched:
            self.spent_term = max(self.spent_term, hello.term)

    def vouch(self) -> None:
        self.is_vouched = True

    def tick(self, now_s: float) -> None:
        if self._started_s is None:
            self._started_s = now_s
        if now_s - self._started_s >= self._patience_s:
            self.vouch()

    def _lacks(self, hello: RaftHello) -> str:
        told = hello.promise
        if not hello.HasField("promise") or told.directory_id != self._directory_id:
            return ""
        promise = Promise(b"", told.term, told.last_index, told.last_term, told.voted)
        lacks = lacking(promise, hello.voter_id, self._journal)
        return lacks and f"voter {hello.voter_id} {lacks}"


def lacking(promise: Promise, promised_to: int, journal: RaftJournal) -> str:
    """Return what the journal lacks of a promise, or nothing if it has everything."""
    term = journal.getCurrentTerm()
    if term > promise.term:
        return ""  # The promise is older than this term, and may be void by now.
    if term < promise.term:
        return f"saw it in term {promise.term}, and it is in term {term}"
    if promise.voted and journal.getVotedForNodeId() != str(promised_to):
        return f"has its vote in term {term}, of which it knows nothing"
    if promise.last_index > journal.last_index:
        return f"knows that it has entry {promise.last_index}, and it ends at {journal.last_index}"
    if promise.last_index >= journal.first_index and (
        journal.term_at(promise.last_index) != promise.last_term
    ):
        return (
            f"knows that it has entry {promise.last_index} of term {promise.last_term}, and it has "
            "another one"
        )
    return ""


class PromiseBook:
    """Keeps what the other voters promise to this one, in its journal."""

    def __init__(self, journal: RaftJournal, directory_of: Callable[[int], bytes]) -> None:
        """Create the book. ``directory_of`` returns the directory id that a voter named."""
        self._journal = journal
        self._directory_of = directory_of

    def is_in(self, voter_id: int, term: int) -> None:
        """Note that the voter sent something in this term, which is on its disk."""
        self._note(voter_id, Promise(b"", term))

    def voted(self, voter_id: int, term: int) -> None:
        """Note that the voter gave this one its vote."""
        self._note(voter_id, Promise(b"", term, voted=True))

    def has(self, voter_id: int, term: int, index: int) -> None:
        """Note that the voter said in this term that it has our entries up to ``index`` on disk."""
        index_term = self._journal.term_at(index)
        if index_term is not None:
            self._note(voter_id, Promise(b"", term, index, index_term))

    def _note(self, voter_id: int, promise: Promise) -> None:
        directory_id = self._directory_of(voter_id)
        if directory_id:
            promise = promise._replace(directory_id=directory_id)
            self._journal.note_promise(voter_id, promise)
