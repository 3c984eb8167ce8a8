"""Counters of the replicas' traffic: plain numbers that the event loop owns."""

from collections import defaultdict

from quorate.broker.replication.hosting.hosted_partition import TopicTraffic


class ReplicaTraffic:
    """The counters of one broker, since its process started.

    A deleted topic keeps its counters until the process ends: a counter that vanished and came
    back smaller would look like a restart.
    """

    __slots__ = (
        "by_topic",
        "isr_changes_refused",
        "isr_expands",
        "isr_shrinks",
        "replicated_in_bytes",
        "replicated_out_bytes",
    )

    def __init__(self) -> None:
        self.by_topic: defaultdict[str, TopicTraffic] = defaultdict(TopicTraffic)
        self.replicated_in_bytes = 0
        self.replicated_out_bytes = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.isr_changes_refused = 0

    def replicated_in(self, size: int) -> None:
        """Count bytes that came from a leader."""
        self.replicated_in_bytes += size

    def replicated_out(self, size: int) -> None:
        """Count bytes that were sent to a follower."""
        self.replicated_out_bytes += size

    def isr_changed(self, grown: int) -> None:
        """Count an ISR change; ``grown`` is the number of members more, or less than 0."""
        if grown < 0:
            self.isr_shrinks += 1
        elif grown > 0:
            self.isr_expands += 1

    def isr_change_refused(self) -> None:
        """Count an ISR change that the quorum refused."""
        self.isr_changes_refused += 1
