"""Sends control requests to a broker of a running cluster as if it were the controller."""

import grpc

from quorate.common.types import BrokerId
from quorate_proto.v1 import control_pb2, control_pb2_grpc
from tests.support.witnesses import Stage


class Commander:
    """Sends commands to a broker as if it were the controller."""

    def __init__(self, stage: Stage, broker_id: int) -> None:
        self._stage = stage
        self._address = str(stage.desk.image().brokers[BrokerId(broker_id)].inter_broker)

    def header(self, version: int, **other: int) -> control_pb2.ControlHeader:
        status = self._stage.cluster.status()
        fields = {
            "controller_id": status.controller_id,
            "controller_epoch": status.controller_epoch,
            "max_broker_epoch": max(broker.epoch for broker in status.brokers),
            "broker_epoch": -1,
            "metadata_offset": status.metadata_offset,
            "ack_timeout_ms": 1_000,
            **other,
        }
        return control_pb2.ControlHeader(version=version, **fields)

    def lead(
        self, *told: control_pb2.TopicLeadership, **header: int
    ) -> control_pb2.LeaderAndIsrResponse:
        request = control_pb2.LeaderAndIsrRequest(header=self.header(5, **header), topics=told)
        with grpc.insecure_channel(self._address) as channel:
            return control_pb2_grpc.BrokerControlStub(channel).LeaderAndIsr(request, timeout=10)

    def stop(
        self, *stops: control_pb2.StoppedPartition, **header: int
    ) -> control_pb2.StopReplicaResponse:
        request = control_pb2.StopReplicaRequest(header=self.header(4, **header), partitions=stops)
        with grpc.insecure_channel(self._address) as channel:
            return control_pb2_grpc.BrokerControlStub(channel).StopReplica(request, timeout=10)


def leadership(stage: Stage, name: str, **other: object) -> control_pb2.TopicLeadership:
    """Partition 0 as it is, but for ``other``."""
    image = stage.desk.image()
    leaf = image.topics[name].partitions[0]
    fields = {
        "leader": leaf.leader,
        "leader_epoch": leaf.leader_epoch,
        "isr": list(leaf.isr),
        "replicas": list(leaf.replicas),
        "record_version": leaf.version,
        **other,
    }
    return control_pb2.TopicLeadership(
        topic=name,
        topic_id=image.topics[name].topic_id,
        partitions=[control_pb2.PartitionLeadership(partition=0, **fields)],  # type: ignore[arg-type]
    )
