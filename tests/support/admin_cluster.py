"""Brokers in this process that answer the admin client."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import grpc
from google.protobuf.message import Message

from quorate.broker.kafka.wire.primitives import at_once
from quorate.broker.quota.quota_description import describe
from quorate.metadata_log.client_quotas import ClientQuotaEntity
from quorate_proto.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    errors_pb2,
    metadata_pb2,
    replication_pb2,
    replication_pb2_grpc,
)


class FakeBroker(admin_pb2_grpc.AdminServicer, replication_pb2_grpc.RangeReadServicer):
    """Answers as broker ``broker_id`` of a cluster whose controller is in ``cluster``."""

    def __init__(self, broker_id: int, cluster: "FakeCluster") -> None:
        self.broker_id = broker_id
        self.cluster = cluster
        self.port = 0
        self.created: list[str] = []
        self.asked: list[Message] = []
        self.cancels = 0
        """The number of next ClusterStatus calls that are refused as by an overloaded server."""

    def ClusterStatus(
        self, request: admin_pb2.ClusterStatusRequest, context: grpc.ServicerContext
    ) -> admin_pb2.ClusterStatusResponse:
        if self.cancels:
            self.cancels -= 1
            context.abort(grpc.StatusCode.CANCELLED, "")
        return admin_pb2.ClusterStatusResponse(
            cluster_id="c",
            controller_id=self.cluster.controller_id,
            controller_epoch=4,
            quorum_leader=1,
            metadata_offset=9,
            brokers=[
                replication_pb2.BrokerEndpoint(
                    broker_id=broker.broker_id,
                    broker_epoch=7,
                    grpc=metadata_pb2.Endpoint(host="127.0.0.1", port=broker.port),
                    kafka=metadata_pb2.Endpoint(host="127.0.0.1", port=1),
                )
                for broker in self.cluster.brokers
            ],
            offline_partitions=[admin_pb2.PartitionRef(topic="t", partition=2)],
            alerts=[f"alert of {self.broker_id}"],
            metrics=[
                admin_pb2.Metric(
                    group="ControllerMutation",
                    name="tokens",
                    tags={"user": "anna", "client-id": ""},
                    value=-7.5 * self.broker_id,
                )
            ],
        )

    def CreateTopics(
        self, request: admin_pb2.CreateTopicsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.CreateTopicsResponse:
        if self.broker_id != self.cluster.controller_id:
            return admin_pb2.CreateTopicsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        over_quota = self.cluster.over_quota
        if over_quota:
            over_quota.popleft()
            return admin_pb2.CreateTopicsResponse(
                topics=[
                    admin_pb2.TopicResult(
                        name=topic.name,
                        error_code=errors_pb2.THROTTLING_QUOTA_EXCEEDED,
                        error_message="over",
                    )
                    for topic in request.topics
                ],
                throttle_time_ms=20,
            )
        self.created += [topic.name for topic in request.topics]
        return admin_pb2.CreateTopicsResponse(
            topics=[
                admin_pb2.TopicResult(
                    name=topic.name,
                    error_code=errors_pb2.INVALID_TOPIC_EXCEPTION if "/" in topic.name else 0,
                    error_message=f"topic name {topic.name!r}" if "/" in topic.name else "",
                )
                for topic in request.topics
            ]
        )

    def CreatePartitions(
        self, request: admin_pb2.CreatePartitionsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.CreatePartitionsResponse:
        if self.broker_id != self.cluster.controller_id:
            return admin_pb2.CreatePartitionsResponse(error_code=errors_pb2.NOT_CONTROLLER)
        self.asked.append(request)
        return admin_pb2.CreatePartitionsResponse(
            topics=[
                admin_pb2.TopicResult(name=topic.name, num_partitions=topic.count)
                for topic in request.topics
            ]
        )

    def RemovePartitions(
        self, request: admin_pb2.RemovePartitionsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.RemovePartitionsResponse:
        self.asked.append(request)
        return admin_pb2.RemovePartitionsResponse(
            topics=[admin_pb2.TopicResult(name=topic.topic) for topic in request.topics]
        )

    def ElectLeaders(
        self, request: admin_pb2.ElectLeadersRequest, context: grpc.ServicerContext
    ) -> admin_pb2.ElectLeadersResponse:
        self.asked.append(request)
        code = errors_pb2.ELECTION_NOT_NEEDED
        return admin_pb2.ElectLeadersResponse(
            partitions=[
                admin_pb2.PartitionResult(topic=topic.topic, partition=number, error_code=code)
                for topic in request.topics
                for number in topic.partitions
            ]
        )

    def IncrementalAlterConfigs(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        self.asked.append(request)
        code = errors_pb2.INVALID_CONFIG
        return admin_pb2.IncrementalAlterConfigsResponse(
            results=[
                admin_pb2.ConfigResult(
                    entity_type=one.entity_type,
                    entity_name=one.entity_name,
                    error_code=code if "bad" in one.values else 0,
                    error_message="bad: no" if "bad" in one.values else "",
                )
                for one in request.changes
            ]
        )

    def AlterConfigs(
        self, request: admin_pb2.AlterConfigsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.AlterConfigsResponse:
        self.asked.append(request)
        return admin_pb2.AlterConfigsResponse(
            results=[
                admin_pb2.ConfigResult(entity_type=one.entity_type, entity_name=one.entity_name)
                for one in request.replacements
            ]
        )

    def DescribeConfigs(
        self, request: admin_pb2.DescribeConfigsRequest, context: grpc.ServicerContext
    ) -> admin_pb2.DescribeConfigsResponse:
        """Every entity has the key "told.by", set for itself, and "default", which is not."""
        own = {"topic": 1, "broker": 2}
        return admin_pb2.DescribeConfigsResponse(
            results=[
                admin_pb2.DescribedConfig(
                    entity_type=one.entity_type,
                    entity_name=one.entity_name,
                    entries=[
                        admin_pb2.ConfigEntry(name="default", value="true", source=5),
                        admin_pb2.ConfigEntry(name="secret", sensitive=True, source=99),
                        admin_pb2.ConfigEntry(
                            name="told.by",
                            value=str(self.broker_id),
                            source=own[one.entity_type] if one.entity_name else 3,
                            synonyms=[
                                admin_pb2.ConfigSynonym(name="told.by", value="1", source=1),
                                admin_pb2.ConfigSynonym(name="x", value="2", source=5),
                            ],
                        ),
                    ],
                )
                for one in request.entities
            ]
        )

    def DescribeUserScramCredentials(
        self,
        request: admin_pb2.DescribeUserScramCredentialsRequest,
        context: grpc.ServicerContext,
    ) -> admin_pb2.DescribeUserScramCredentialsResponse:
        return admin_pb2.DescribeUserScramCredentialsResponse()

    def MoveController(
        self, request: admin_pb2.MoveControllerRequest, context: grpc.ServicerContext
    ) -> admin_pb2.MoveControllerResponse:
        return admin_pb2.MoveControllerResponse(
            error_code=errors_pb2.BROKER_NOT_AVAILABLE,
            error_message=f"broker {request.broker_id} is not there",
        )

    def AlterClientQuotas(
        self, request: admin_pb2.AlterClientQuotasRequest, context: grpc.ServicerContext
    ) -> admin_pb2.AlterClientQuotasResponse:
        self.asked.append(request)
        return admin_pb2.AlterClientQuotasResponse(
            results=[
                admin_pb2.QuotaResult(
                    entity=one.entity,
                    error_code=errors_pb2.INVALID_REQUEST if bad else 0,
                    error_message="bad: no" if bad else "",
                )
                for one in request.alterations
                for bad in [any(change.key == "bad" for change in one.changes)]
            ]
        )

    def DescribeClientQuotas(
        self, request: admin_pb2.DescribeClientQuotasRequest, context: grpc.ServicerContext
    ) -> admin_pb2.DescribeClientQuotasResponse:
        return at_once(describe(self.cluster.quotas, request))

    def DescribeTopics(
        self, request: replication_pb2.DescribeTopicsRequest, context: grpc.ServicerContext
    ) -> replication_pb2.DescribeTopicsResponse:
        unknown = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        return replication_pb2.DescribeTopicsResponse(
            topics=[
                replication_pb2.TopicDescription(topic=name, error_code=unknown)
                for name in request.topics
            ]
            or [replication_pb2.TopicDescription(topic=name) for name in ("b", "a")]
        )


class FakeCluster:
    def __init__(self, brokers: int, controller_id: int) -> None:
        self.controller_id = controller_id
        self.over_quota: deque[None] = deque()
        """One item for each of the next creations, which are refused because they are over the
        quota."""
        self.quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
        self.brokers = [
            FakeBroker(broker_id, self)  # type: ignore[abstract]  # gRPC refuses the rest
            for broker_id in range(1, brokers + 1)
        ]

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{broker.port}" for broker in self.brokers]


@contextmanager
def serving(cluster: FakeCluster) -> Iterator[FakeCluster]:
    with ExitStack() as stack:
        for broker in cluster.brokers:
            server = grpc.server(stack.enter_context(ThreadPoolExecutor(2)))
            admin_pb2_grpc.add_AdminServicer_to_server(broker, server)
            replication_pb2_grpc.add_RangeReadServicer_to_server(broker, server)
            broker.port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            stack.callback(_stop, server)
        yield cluster


def _stop(server: grpc.Server) -> None:
    server.stop(None).wait()
