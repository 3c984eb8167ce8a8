"""Guards of consumer groups, each with a way to take it out."""

from typing import Any, Final

from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.consumer_member import ConsumerMember
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.replication.partition.follower_progress import FollowerProgress
from quorate_proto.v1 import errors_pb2
from tests.sim.mutants import Mutant, Replacement, nothing


def _free_partitions() -> list[Replacement]:
    def is_free(_self: ConsumerGroup, _member_id: str, _topic: Any, _partition: int) -> bool:
        return True

    return [(ConsumerGroup, "_is_free", is_free)]


def _sessions() -> list[Replacement]:
    def set_session(self: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        member.expire_at(now_ms + 300)
        self._wake_by(member.session_deadline_ms)

    return [(ConsumerGroup, "_set_session", set_session)]


def _commit_checks() -> list[Replacement]:
    def check_commit(*_args: Any, **_kwargs: Any) -> int:
        return errors_pb2.NONE

    return [(ConsumerGroup, "check_commit", check_commit)]


def _leases() -> list[Replacement]:
    return [(LedPartition, "has_valid_lease", property(lambda self: self.is_led))]


def _deleted_records() -> list[Replacement]:
    never = property(lambda _self: False, nothing)
    return [(FollowerProgress, "keeps_deleted", never)]


MUTANTS: Final = [
    Mutant(
        "free-partitions",
        "that a partition is given to a member once the one before has given it up",
        _free_partitions,
    ),
    Mutant("sessions", "that a member may be silent for its whole session", _sessions),
    Mutant("commit-checks", "that members commit in their own epoch alone", _commit_checks),
    Mutant("leases", "that a coordinator is silent when another may have been elected", _leases),
    Mutant(
        "deleted-records",
        "that a follower joins the ISR once it has deleted what its leader has deleted",
        _deleted_records,
    ),
]
