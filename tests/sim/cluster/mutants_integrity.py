"""Guards against lost rows, old folders, refused originals and cut links, taken out."""

from collections.abc import Mapping
from typing import Any, Final

from quorate.broker.common.errors import KafkaError
from quorate.broker.controller.broker_probes import ReachedBrokers
from quorate.broker.controller.controller_record import ControllerRecord
from quorate.broker.controller.managers import reachability
from quorate.broker.log.options import LogAppendInfo
from quorate.broker.replication import log_directory_monitor
from quorate.broker.replication.commands import stray_partitions
from quorate.broker.replication.commands.stray_partitions import Assignment
from quorate.broker.replication.hosting.lost_replicas import Loss, lost_replicas
from quorate.broker.replication.hosting.peer_silence import PeerSilence
from quorate.broker.replication.partition import partition_replica
from quorate.broker.replication.serving import produce
from quorate.common.types import BrokerId, TopicIdPartition
from quorate.metadata_log.records import Operation
from tests.sim.mutants import Mutant, Replacement, nothing


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
    def nobody_newly(*_: Any) -> list[BrokerId]:
        return []

    def nobody(*_: Any) -> dict[BrokerId, int]:
        return {}

    return [(PeerSilence, "check", nobody_newly), (PeerSilence, "silent_peers", nobody)]


def _lag_first() -> list[Replacement]:
    def at_once(_silence_max_ms: int) -> int:
        return 0

    return [(partition_replica, "silence_noticed_ms", at_once)]


def _cut_off_leaders() -> list[Replacement]:
    def none(*_: Any) -> list[Operation]:
        return []

    return [(reachability, "cut_off_changes", none)]


def _cut_off_controller() -> list[Replacement]:
    async def stay(*_: Any) -> bool:
        return False

    return [(ControllerRecord, "resign_as_cut_off", stay)]


def _anew_cut_off_controller() -> list[Replacement]:
    return [(ControllerRecord, "reached_all", nothing)]


def _probes() -> list[Replacement]:
    def everyone_answers(*_: Any) -> tuple[Any, ...]:
        return ()

    return [
        (ReachedBrokers, "unreached", everyone_answers),
        (ReachedBrokers, "undecided", everyone_answers),
    ]


INTEGRITY_MUTANTS: Final = [
    Mutant("unknown-ids", "that logs of unknown topic ids are kept (rule 7)", _unknown_ids),
    Mutant("absent-logs", "that an absent log counts as lost (rule 8)", _absent_logs),
    Mutant("short-logs", "that a log below its own promise is lost (rule 8)", _short_logs),
    Mutant("stale-folders", "that an old copy of a folder is noticed (rule 8)", _stale_folders),
    Mutant("originals-first", "that originals are found before a refusal", _originals),
    Mutant("silent-streams", "that silence of a peer is evidence", _silent_streams),
    Mutant("silence-before-lag", "that a leader waits for silence before lag", _lag_first),
    Mutant("cut-off-leaders", "that leadership leaves brokers that are cut off", _cut_off_leaders),
    Mutant("cut-off-controller", "that a controller that is cut off resigns", _cut_off_controller),
    Mutant(
        "cut-off-anew",
        "that a controller resigns again which is cut off anew",
        _anew_cut_off_controller,
    ),
    Mutant("probes", "that a controller asks whom it reaches", _probes),
]
