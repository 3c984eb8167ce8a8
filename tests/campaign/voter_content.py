"""Reads a voter's data folder as a voter reads it, and compares it with what the folder held."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec

from quorate.common.files.data_folder import claimed_data_folder
from quorate.metadata_log.snapshot.snapshot import encode_snapshot
from quorate.quorum import process
from quorate.quorum.operations.backup_file import read_backup
from quorate.quorum.operations.first_start import read_first_voters
from quorate.quorum.quorum_config import load_quorum_config
from quorate.quorum.quorum_errors import BackupError
from quorate.quorum.raft.raft_node import RaftNode
from quorate.quorum.raft.staleness import lacking
from quorate.quorum.raft.storage.journal import RaftEntry
from quorate.quorum.raft.storage.promises import Promise
from quorate.quorum.voter.state_machine import QuorumStateMachine
from tests.campaign.outcome import Outcome, Verdict
from tests.campaign.refusals import refusal

BACKUP_FILE = "quorum.backup"
"""A backup lies in the folder, so that it is damaged like the voter's own files."""
NAMED = process._FOR_PEOPLE
"""The errors whose message the voter's process shows; of any other it shows a trace."""


class VoterContent(msgspec.Struct):
    """The whole state that a voter knows from its folder."""

    directory_id: bytes
    term: int
    voted_for: str
    entries: list[RaftEntry]
    commit_index: int
    image: bytes
    voter_set_version: int
    first_voters: dict[int, bytes]
    lacking: tuple[str, ...]
    """The reports in which the other voters would say what this one lacks."""
    backup: bytes = b""


@contextmanager
def _opened(
    config_path: Path, folder: Path
) -> Iterator[tuple[bytes, RaftNode, QuorumStateMachine]]:
    """Open the folder as a voter's process does, without listening."""
    config = load_quorum_config(config_path, {"data.dir": str(folder)})
    with claimed_data_folder(
        config.data_dir, "quorum", config.voter_id, config.cluster_id, process.first_journal
    ) as directory_id:
        process.require_journal(config.data_dir)
        machine = QuorumStateMachine()
        node = process._open_node(config, directory_id, machine, None)
        yield directory_id, node, machine


def read_content(
    config_path: Path, folder: Path, promises: Mapping[int, Promise] = MappingProxyType({})
) -> VoterContent:
    """Open the folder and read everything but the backup. ``promises`` are those that this voter
    has made to others."""
    with _opened(config_path, folder) as (directory_id, node, machine):
        return VoterContent(
            directory_id,
            node.journal.getCurrentTerm(),
            str(node.journal.getVotedForNodeId()),
            list(node.journal[:]),
            node.journal.getRaftCommitIndex(),
            b"".join(encode_snapshot(machine.image)),
            machine.image.voter_set.version,
            read_first_voters(folder),
            tuple(
                f"voter {promised_to} {lacks}"
                for promised_to, promise in promises.items()
                if promise.directory_id == directory_id
                and (lacks := lacking(promise, promised_to, node.journal))
            ),
        )


def read_with_backup(config_path: Path, folder: Path) -> VoterContent:
    """Open the folder and read everything."""
    content = read_content(config_path, folder)
    content.backup = _backup(folder)
    return content


def _backup(folder: Path) -> bytes:
    backup = read_backup(folder / BACKUP_FILE)
    return repr((backup.header, backup.term)).encode() + b"".join(encode_snapshot(backup.image))


def judge(
    config_path: Path,
    folder: Path,
    expected: VoterContent,
    older: Sequence[VoterContent],
    promises: Mapping[int, Promise],
) -> Verdict:
    """Open a damaged folder and compare it with what it held. Call it in a child process.

    ``older`` is what the copies held from which something was put back. A voter that is older than
    it was leaves when its peers tell it.
    """
    try:
        found = read_content(config_path, folder, promises)
        is_there = (folder / BACKUP_FILE).exists()
        found.backup = _backup(folder) if is_there else expected.backup
    except (*NAMED, BackupError) as error:
        return refusal(folder, str(error))
    verdict = compare(expected, found)
    if verdict.outcome is Outcome.SAME:
        return verdict
    if found.lacking:
        return Verdict(Outcome.HEALED, found.lacking)
    own = compare(expected, msgspec.structs.replace(found, backup=expected.backup))
    if own.outcome is Outcome.SAME and found.backup in [each.backup for each in older]:
        return Verdict(Outcome.STALE, verdict.notes)  # An older backup is a backup.
    return verdict


def compare(expected: VoterContent, found: VoterContent) -> Verdict:
    """Return whether the voter knows what it knew."""
    wrong = [
        f"{field} is {getattr(found, field)!r}, not {getattr(expected, field)!r}"
        for field in ("directory_id", "term", "voted_for", "commit_index", "voter_set_version")
        if getattr(found, field) != getattr(expected, field)
    ]
    wrong += [
        f"another {field}"
        for field in ("image", "backup")
        if getattr(found, field) != getattr(expected, field)
    ]
    if found.entries != expected.entries:
        ends = [(each[0][1], each[-1][1]) for each in (expected.entries, found.entries) if each]
        wrong.append(f"other entries: {ends}")
    # Once a voter set is committed, the record of the first start is not needed any more.
    is_forgotten = not found.first_voters and found.voter_set_version
    if found.first_voters != expected.first_voters and not is_forgotten:
        wrong.append("other first voters")
    return Verdict(Outcome.DIFFERENT if wrong else Outcome.SAME, tuple(wrong))
