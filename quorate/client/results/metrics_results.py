"""Metrics that brokers report."""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate_proto.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of one broker, under Kafka's names: group ControllerMutation, name tokens."""

    broker_id: int
    group: str
    name: str
    tags: Mapping[str, str]
    value: float

    @classmethod
    def from_proto(cls, broker_id: int, metric: admin_pb2.Metric) -> "Metric":
        return cls(broker_id, metric.group, metric.name, dict(metric.tags), metric.value)
