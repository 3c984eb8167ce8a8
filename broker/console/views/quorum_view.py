"""The metadata quorum as DescribeQuorum tells of it. Pure."""

from typing import Final, NamedTuple

from quorate.broker.common.errors import error_name
from quorate.broker.console.views.troubles import QuorumHealth
from quorate.broker.kafka.wire.codec import Message

SILENT_MS: Final = 3_000
"""A voter that the leader has not heard of for so long counts as silent."""


class VoterRow(NamedTuple):
    """One voter or observer."""

    voter_id: int
    address: str
    role: str
    log_end_offset: int
    behind: int | None
    silent_ms: int | None
    """None if the voter that was asked does not know."""


class QuorumView(NamedTuple):
    """The quorum, as the voter that was asked knows it."""

    leader: int
    term: int
    commit_offset: int
    voters: tuple[VoterRow, ...]


def quorum_view(answer: Message, now_ms: int) -> QuorumView | None:
    """Return the quorum, or None if the answer has none."""
    partitions = [one for topic in answer["topics"] for one in topic["partitions"]]
    if answer["error_code"] or not partitions:
        return None
    log = partitions[0]
    addresses = {
        node["node_id"]: ", ".join(
            f"{one['name'].lower()} {one['host']}:{one['port']}" for one in node["listeners"]
        )
        for node in answer.get("nodes", ())
    }
    newest = max((one["log_end_offset"] for one in log["current_voters"]), default=0)

    def row(replica: Message, role: str) -> VoterRow:
        heard_ms = replica["last_fetch_timestamp"]
        end = replica["log_end_offset"]
        voter_id = replica["replica_id"]
        return VoterRow(
            voter_id,
            addresses.get(voter_id, ""),
            "leader" if voter_id == log["leader_id"] else role,
            end,
            max(0, newest - end) if end >= 0 else None,
            max(0, now_ms - heard_ms) if heard_ms >= 0 else None,
        )

    return QuorumView(
        log["leader_id"],
        log["leader_epoch"],
        log["high_watermark"],
        (
            *(row(one, "voter") for one in log["current_voters"]),
            *(row(one, "observer") for one in log["observers"]),
        ),
    )


def quorum_health(answer: Message, now_ms: int) -> QuorumHealth:
    """Return whether the quorum can commit, and which voters are silent."""
    view = quorum_view(answer, now_ms)
    if view is None:
        return QuorumHealth(problem=answer.get("error_message") or error_name(answer["error_code"]))
    voters = [one for one in view.voters if one.role != "observer"]
    silent = [
        one.voter_id
        for one in voters
        if one.role != "leader" and one.silent_ms is not None and one.silent_ms > SILENT_MS
    ]
    return QuorumHealth(view.leader, len(voters), tuple(silent))
