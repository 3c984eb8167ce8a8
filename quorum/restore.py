"""Restoring a quorum from a backup: a fresh data folder for one voter, and a history of its own.

What the lost quorum did after the backup is gone here, but brokers and clients remember it. So the
restored history must never repeat a number that the lost one may have handed out for something
else: offsets, terms, controller epochs, leader epochs and producer ids all begin far beyond the
backup's. Whoever watches from an old offset then gets a snapshot, an old controller is fenced, and
old leaders follow the next one. Sessions and registrations stay, and expire unless kept alive.
"""

from pathlib import Path
from typing import Final, NamedTuple

import immutables
import msgspec

from metadata_log.image import Image, Partition, Topic, VoterSet
from metadata_log.records import QuorumVoter
from metadata_log.snapshot import encode_snapshot
from metadata_log.types import ControllerEpoch, LeaderEpoch, MetadataOffset
from quorum.backup_file import Backup, read_backup
from quorum.config import QuorumConfig
from quorum.data_folder import DataFolderError, claimed_data_folder
from quorum.errors import BackupError
from quorum.raft.journal import JournalError
from quorum.raft.lmdb_journal import JOURNAL_FILE, LmdbJournal
from quorum.raft.snapshot_file import SnapshotPosition, write_snapshot
from quorum.raft.snapshots import SNAPSHOT_FILE

OFFSET_GAP: Final = 1_000_000_000
"""More transactions than the lost quorum can have committed since its backup."""

EPOCH_GAP: Final = 1_000_000
"""As many elections; 2,000 restores fit into an epoch's 32 bits."""

PRODUCER_ID_GAP: Final = 1_000_000_000_000


class Restored(NamedTuple):
    """What was made."""

    backup: Backup
    position: SnapshotPosition
    folder: Path


def restore(path: Path, config: QuorumConfig) -> Restored:
    """Make the data folder of ``config``'s voter from the backup in ``path``.

    The voter is then a quorum of its own; the others join it as new voters.

    Raises:
        BackupError: the backup is unusable or of another cluster, or the folder is not empty.
    """
    backup = read_backup(path)
    if backup.header.cluster_id != config.cluster_id:
        raise BackupError(
            f"{path} is of cluster {backup.header.cluster_id}, the configuration says "
            f"cluster.id={config.cluster_id}: correct it, or use another backup"
        )
    folder = config.data_dir
    _require_empty(folder)
    position = SnapshotPosition(backup.image.offset + OFFSET_GAP, backup.term + 1)
    try:
        with claimed_data_folder(
            folder, "quorum", config.voter_id, config.cluster_id
        ) as directory_id:
            own = msgspec.structs.replace(config.own.as_member(), directory_id=directory_id)
            image = restored_image(backup.image, position.last_index, own)
            _write(folder, position, image)
    except (DataFolderError, JournalError, OSError) as error:
        raise BackupError(
            f"cannot restore into {folder}: {error}. Remove what was written, and try again"
        ) from error
    return Restored(backup, position, folder)


def restored_image(image: Image, offset: int, own: QuorumVoter) -> Image:
    """The backup's image as the first one of a new history that begins at ``offset``."""
    at = MetadataOffset(offset)
    return msgspec.structs.replace(
        image,
        offset=at,
        restored_offset=at,
        controller=None,
        controller_epoch=ControllerEpoch(image.controller_epoch + EPOCH_GAP),
        next_producer_id=image.next_producer_id + PRODUCER_ID_GAP,
        topics=immutables.Map(
            {name: _in_new_epochs(topic) for name, topic in image.topics.items()}
        ),
        voter_set=VoterSet((own,), at),
    )


def _in_new_epochs(topic: Topic) -> Topic:
    leaves = tuple(
        msgspec.structs.replace(leaf, leader_epoch=_new_epoch(leaf)) for leaf in topic.partitions
    )
    floor = LeaderEpoch(topic.leader_epoch_floor + EPOCH_GAP)
    return msgspec.structs.replace(topic, partitions=leaves, leader_epoch_floor=floor)


def _new_epoch(leaf: Partition) -> LeaderEpoch:
    return LeaderEpoch(leaf.leader_epoch + EPOCH_GAP)


def _require_empty(folder: Path) -> None:
    try:
        if folder.exists() and any(folder.iterdir()):
            raise BackupError(
                f"data folder {folder} is not empty: a restore never overwrites. "
                "Move what is there aside"
            )
    except OSError as error:
        raise BackupError(f"cannot read data folder {folder}: {error.strerror}") from error


def _write(folder: Path, position: SnapshotPosition, image: Image) -> None:
    """The journal first: without the snapshot behind it a voter refuses to start."""
    journal = LmdbJournal(folder / JOURNAL_FILE)
    try:
        journal.reset_to(*position)
        journal.setCurrentTerm(position.last_term, None)
    finally:
        journal.close()
    write_snapshot(folder / SNAPSHOT_FILE, position, encode_snapshot(image))
