"""Guards against lost rows, old folders, refused originals and silent peers, taken out."""

from collections.abc import Mapping
from typing import Any, Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.options import LogAppendInfo
from quorate.broker.replication import log_directory_monitor
from quorate.broker.replication.commands import stray_partitions
from quorate.broker.replication.commands.stray_partitions import Assignment
from quorate.broker.replication.hosting.lost_replicas import Loss, lost_replicas
from quorate.broker.replication.hosting.peer_silence import PeerSilence
from quorate.broker.replication.serving import produce
from quorate.common.types import TopicIdPartition
from tests.sim.mutants import Mutant, Replacement


def _unknown_ids() -> list[Replacement]:
    def all_else_has_ended(*about: Any) -> Assignment:
        found = assignment(*about)
        return Assignment.ENDED if found is Assignment.UNKNOWN else found

    assignment = stray_partitions.assignment
    return [(stray_partitions, "assignment", all_else_has_ended)]


def _without(loss: Loss) -> list[Replacement]:
    def without_one(*about: Any, **more: Any) -> Mapping[TopicIdPartition, Loss]:
        return {tip: one for tip, one in lost_replicas(*about, **more).items() if one is not loss}

    return [(log_directory_monitor, "lost_replicas", without_one)]


def _absent_logs() -> list[Replacement]:
    return _without(Loss.ABSENT)


def _short_logs() -> list[Replacement]:
    return _without(Loss.SHORT)


def _stale_folders() -> list[Replacement]:
    def never(*_: Any) -> None:
        return None

    return [(log_directory_monitor, "why_stale", never)]


def _originals() -> list[Replacement]:
    def refuse(_hosted: Any, _entry: Any, refusal: KafkaError) -> LogAppendInfo:
        raise refusal

    return [(produce, "_original", refuse)]


def _silent_streams() -> list[Replacement]:
    def nobody(*_: Any) -> frozenset[Any]:
        return frozenset()

    return [(PeerSilence, "check", nobody), (PeerSilence, "silent_peers", nobody)]


INTEGRITY_MUTANTS: Final = [
    Mutant("unknown-ids", "that logs of unknown topic ids are kept (rule 7)", _unknown_ids),
    Mutant("absent-logs", "that an absent log counts as lost (rule 8)", _absent_logs),
    Mutant("short-logs", "that a log below its own promise is lost (rule 8)", _short_logs),
    Mutant("stale-folders", "that an old copy of a folder is noticed (rule 8)", _stale_folders),
    Mutant("originals-first", "that originals are found before a refusal", _originals),
    Mutant("silent-streams", "that silence of a peer is evidence", _silent_streams),
]
