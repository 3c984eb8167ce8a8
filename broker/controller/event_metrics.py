"""The metrics of the controller's event queue: how much waits in it, and for how long.

Operators size the quotas of controller mutations by them (Q9).
"""

from collections.abc import Iterator
from typing import Final

from quorate.broker.controller.tenure import EventPriority, EventQueue
from quorate.common.metrics.family import Family, MetricKind, Sample

GROUP: Final = "ControllerEventManager"

QUEUED: Final = Family(
    "quorate_controller_events_queued",
    MetricKind.GAUGE,
    GROUP,
    "EventQueueSize",
    "Events that the controller has not got to yet: quotas are sized by it.",
)
QUEUE_TIMES: Final = Family(
    "quorate_controller_event_queue_seconds",
    MetricKind.HISTOGRAM,
    GROUP,
    "EventQueueTimeMs",
    "How long events waited for their turn: of brokers, elections on request, admin requests.",
    ("priority",),
)
PROCESSING_TIMES: Final = Family(
    "quorate_controller_event_seconds",
    MetricKind.HISTOGRAM,
    GROUP,
    "EventQueueProcessingTimeMs",
    "How long events took, the write to the quorum included; an election may wait for one.",
    ("priority",),
)


def event_samples(events: EventQueue) -> Iterator[Sample]:
    """Yield how many events are queued, and how long events have waited and taken."""
    yield Sample(QUEUED, len(events))
    for priority in EventPriority:
        labels = (priority.name.lower(),)
        times = events.times(priority)
        yield Sample(QUEUE_TIMES, times.queue.distribution, labels)
        yield Sample(PROCESSING_TIMES, times.processing.distribution, labels)
