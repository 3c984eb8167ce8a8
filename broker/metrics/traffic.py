"""Counters that parts of the broker move as they go: plain numbers of the event loop's."""

from collections import defaultdict


class TopicTraffic:
    """What clients have written to and read from the partitions of a topic that lead here."""

    __slots__ = ("bytes_in", "bytes_out", "produces_refused", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.produces_refused = 0


class Traffic:
    """Of one broker, since its process started. A deleted topic keeps its counters until then:
    a counter that vanished and came back smaller would look like a restart."""

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
