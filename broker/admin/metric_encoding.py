"""Metrics as the Admin service returns them: with Kafka's names."""

from collections.abc import Iterator

from quorate.broker.metrics.replica_metrics import PARTITION
from quorate.common.metrics.family import Distribution, Sample
from quorate_proto.v1 import admin_pb2


def encode_metrics(sample: Sample) -> Iterator[admin_pb2.Metric]:
    """Yield one metric; for a distribution its Count and its Mean in seconds, Kafka's attributes.

    Metrics of single partitions are left to Prometheus: there may be 100,000 of them.
    """
    family, value = sample.family, sample.value
    if PARTITION in family.labels:
        return
    names = (label.replace("_", "-") for label in family.labels)
    tags = dict(zip(names, sample.labels, strict=True))
    if isinstance(value, Distribution):
        count = sum(value.counts)
        figures = {".Count": float(count), ".Mean": value.sum / count if count else 0.0}
    else:
        figures = {"": value}
    for attribute, figure in figures.items():
        name = family.kafka_name + attribute
        yield admin_pb2.Metric(group=family.group, name=name, tags=tags, value=figure)
