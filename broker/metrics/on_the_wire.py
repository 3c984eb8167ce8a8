"""Figures as the Admin service tells them: in Kafka's names."""

from collections.abc import Iterator

from broker.metrics.replicas import PARTITION
from quorate_proto.v1 import admin_pb2
from quorum.metrics.family import Distribution, Sample


def encode_metrics(sample: Sample) -> Iterator[admin_pb2.Metric]:
    """One figure; of a distribution its Count and Mean (in seconds), Kafka's attributes.

    Figures of single partitions are Prometheus' alone: there may be 100,000 of them.
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
