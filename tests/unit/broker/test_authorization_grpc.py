"""Every method of the gRPC services that clients reach: what it asks of its caller (F5).

A method without a row fails here. Changes are judged behind the door that they share with the Kafka
wire: ``test_authorization_matrix.py`` tries them, ``GUARDS`` has them all.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import grpc
import pytest

from quorate.broker.admin.admin_reads import AdminReads
from quorate.broker.admin.admin_service import AdminService
from quorate.broker.admin.metadata_view_service import MetadataViewService
from quorate.broker.admin.transaction_admin import TransactionAdmin
from quorate.broker.changes.table import CHANGES
from quorate.broker.coordinator.groups.group_offsets_service import GroupOffsetsService
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    ProducerEpoch,
    TransactionMetadata,
    TransactionState,
)
from quorate.broker.kafka.admin.config_description import ConfigReads
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.quota.client_memory import ResponseMemory
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.replication.api import ProduceOutcome
from quorate.broker.replication.frames import pack_frame
from quorate.broker.replication.services.range_read_service import RangeReadService
from quorate.broker.replication.services.range_write_service import RangeWriteService
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.grpc_caller import Caller, set_caller
from quorate.broker.security.principal import ANONYMOUS, KafkaPrincipal
from quorate.broker.security.token_access import TokenDescription
from quorate.broker.security.token_secrets import TokenKeys
from quorate.common.acl_types import CLUSTER_NAME, AclOperation, AclPermission, ResourceType
from quorate.common.types import TopicPartition
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import encode_snapshot
from quorate_proto.v1 import admin_pb2, errors_pb2, groups_pb2, quorum_pb2, replication_pb2
from tests.support import authorization_rows as kafka_rows
from tests.support.acls import Binding, acl, log_with
from tests.support.authorization_table import columns
from tests.support.authorization_table.columns import entries_of
from tests.support.followers import ShownImage
from tests.support.identities import active, registered
from tests.support.kafka_fakes import FakeMetadata

Op = AclOperation
WHO: Final = "User:alice"
ALICE: Final = KafkaPrincipal("alice")
CLUSTER_DENIED: Final = errors_pb2.CLUSTER_AUTHORIZATION_FAILED
TOPIC_DENIED: Final = errors_pb2.TOPIC_AUTHORIZATION_FAILED
TRANSACTION_DENIED: Final = errors_pb2.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def cluster(operation: Op) -> Binding:
    return acl(WHO, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def topic(operation: Op) -> Binding:
    return acl(WHO, operation, ResourceType.TOPIC, "t")


class Refused(Exception):
    """The call was aborted with PERMISSION_DENIED."""


class Call:
    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        assert code is grpc.StatusCode.PERMISSION_DENIED
        raise Refused(details)


class Controller:
    """One that does what it is asked, and remembers it."""

    controller_epoch = 1
    alerts: list[str] = []  # noqa: RUF012 - never changed

    def __init__(self) -> None:
        self.done: list[str] = []

    async def resign(self) -> None:
        self.done.append("resign")

    async def hand_over(
        self, request: admin_pb2.MoveControllerRequest
    ) -> admin_pb2.MoveControllerResponse:
        self.done.append("hand over")
        return admin_pb2.MoveControllerResponse()


class Quorum:
    cluster_id = "c"

    def relay_watch(self, request: quorum_pb2.WatchRequest) -> Any:  # noqa: ANN401 - a generator
        async def events() -> Any:  # noqa: ANN401 - as above
            if request.from_oldest:
                yield quorum_pb2.WatchEvent(snapshot_chunk=b"".join(encode_snapshot(Image())))
                yield quorum_pb2.WatchEvent(snapshot_done=True)
            yield quorum_pb2.WatchEvent(applied_offset=5)

        return events()

    async def read_offset(self) -> int:
        return 5

    async def status(self) -> quorum_pb2.QuorumStatusResponse:
        return quorum_pb2.QuorumStatusResponse(leader_id=1)


class Table:
    """No partition is hosted here."""

    def named(self, tp: object) -> None:
        return None

    def not_leader(self, tp: object, hosted: None) -> tuple[int, str]:
        return errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"no replica of {tp} is here"

    def __iter__(self) -> Iterator[None]:
        return iter(())


class Manager:
    """Appends whatever it is given."""

    table = Table()

    async def produce(self, entries: list[Any], acks: int, timeout_ms: int) -> list[ProduceOutcome]:
        return [ProduceOutcome(base_offset=0) for _ in entries]


class Coordinator:
    """Of one transaction, which may be aborted."""

    partition_count = 1

    def answering(self) -> list[tuple[int, list[tuple[str, TransactionMetadata]]]]:
        state, nothing = TransactionState.ONGOING, frozenset[TopicPartition]()
        return [(0, [("x", TransactionMetadata(7, 0, 1_000, state, nothing, 0, 0))])]

    def shard_of(self, transactional_id: str) -> "Coordinator":
        return self

    async def abort(self, transactional_id: str) -> ProducerEpoch:
        return ProducerEpoch(7, 0)


class Ids:
    async def take(self) -> int:
        return 7


class Commits:
    """Takes whatever offsets it is given."""

    async def commit(self, group_id: str, offsets: Any, *, may_go_back: bool) -> Any:  # noqa: ANN401
        return dict.fromkeys(offsets, -1)


async def nothing_missing() -> None:
    return None


class Broker:
    """A broker's services, asked by alice over gRPC unless ``who`` is somebody else."""

    def __init__(
        self, *bindings: Binding, super_users: str = "", who: KafkaPrincipal = ALICE
    ) -> None:
        self.context = admin_pb2.RequestContext(
            principal_name=str(who), client_host="h", forwarded_by=-1
        )
        log = log_with(acl("User:bob", Op.ALL, ResourceType.TOPIC, "*"), *bindings)
        log.create_topic("t", (1,))
        log.create_topic("u", (1,))
        follower: Any = MetadataFollower(None)  # type: ignore[arg-type]
        follower.image, follower.applied_offset = log.image, log.image.offset
        authorizer = Authorizer(
            ShownImage(lambda: log.image),
            AuthorizerSettings(enabled=True, super_users=frozenset({super_users})),
        )
        self.controller = Controller()
        configs: Any = ConfigReads(ShownImage(lambda: log.image), None, authorizer)  # type: ignore[arg-type]
        tokens = TokenDescription(follower, TokenKeys("", ""), authorizer)
        quorum: Any = Quorum()
        controller: Any = self.controller
        coordinator: Any = Coordinator()
        hosted: Any = Manager()
        self.reads = {
            **AdminReads(follower, configs, tokens, authorizer, lambda: 0, WorkTurns()).methods(),
            **TransactionAdmin(coordinator, hosted, authorizer, lambda: 0).methods(),
        }
        self.admin = AdminService(
            identity=registered(1, 1),
            images=follower,
            quorum=quorum,
            controller=active(controller),
            authorizer=authorizer,
            broker_alerts=lambda: ["alert"],
        )
        self.view = MetadataViewService(quorum, follower, authorizer.rights_of_caller)
        metadata: Any = FakeMetadata()
        metadata.add_topic("t")
        metadata.add_topic("u")
        metadata.brokers = {1: _Peer()}
        table: Any = Table()
        rights = authorizer.rights_of_caller
        self.memory = ResponseMemory()
        self.ranges = RangeReadService(table, metadata, rights, lambda topic: 1 << 20, self.memory)
        manager: Any = Manager()
        self.writes = RangeWriteService(manager, Ids(), rights)
        commits: Any = Commits()
        self.offsets = GroupOffsetsService(commits, metadata, rights, nothing_missing)
        set_caller(Caller(who, "h"))


class _Peer:
    """As far as it is described."""

    from quorate.common.types import Endpoint as _Endpoint

    grpc = kafka = _Endpoint("h", 1)
    epoch = 1
    rack = ""


CALL: Any = Call()


async def resign(broker: Broker) -> int:
    answer = await broker.admin.ResignController(
        admin_pb2.ResignControllerRequest(context=broker.context), CALL
    )
    assert bool(answer.error_code) is not bool(broker.controller.done)
    return answer.error_code


async def move(broker: Broker) -> int:
    answer = await broker.admin.MoveController(
        admin_pb2.MoveControllerRequest(context=broker.context, broker_id=2), CALL
    )
    assert bool(answer.error_code) is not bool(broker.controller.done)
    return answer.error_code


async def status(broker: Broker) -> int:
    """Where brokers are is told to all; the rest is not."""
    answer = await broker.admin.ClusterStatus(admin_pb2.ClusterStatusRequest(), CALL)
    assert [one.broker_id for one in answer.brokers] == [1]
    assert answer.controller_id == 1
    assert bool(answer.alerts) is bool(answer.topics) is bool(answer.features)
    return 0 if answer.alerts else CLUSTER_DENIED


async def watch(broker: Broker) -> int:
    try:
        events = [
            event async for event in broker.view.WatchMetadata(quorum_pb2.WatchRequest(), CALL)
        ]
    except Refused:
        return CLUSTER_DENIED
    assert len(events) == 1
    return 0


async def metadata_offsets(broker: Broker) -> int:
    try:
        answer = await broker.view.MetadataOffsets(admin_pb2.MetadataOffsetsRequest(), CALL)
    except Refused:
        return CLUSTER_DENIED
    assert answer.earliest_offset == 1
    assert answer.latest_offset > 5
    return 0


async def metadata_changes(broker: Broker) -> int:
    request = admin_pb2.MetadataChangesRequest(start_offset=1, end_offset=6)
    try:
        frames = [frame async for frame in broker.view.ReadMetadataChanges(request, CALL)]
    except Refused:
        return CLUSTER_DENIED
    assert frames[-1].next_offset == 6
    return 0


async def describe_topics(broker: Broker) -> int:
    named = await broker.ranges.describe_topics(
        replication_pb2.DescribeTopicsRequest(topics=["t"]), CALL
    )
    every = await broker.ranges.describe_topics(
        replication_pb2.DescribeTopicsRequest(all=True), CALL
    )
    code: int = named.topics[0].error_code
    assert ("t" in [one.topic for one in every.topics]) is (not code)
    assert bool(named.topics[0].partitions) is (not code)
    return code


async def list_offsets(broker: Broker) -> int:
    query = replication_pb2.ListOffsetsRequest(
        queries=[replication_pb2.OffsetQuery(topic="t", partition=0, timestamp_ms=-1)]
    )
    code: int = (await broker.ranges.list_offsets(query, CALL)).answers[0].error_code
    return code if code == TOPIC_DENIED else 0


async def read(broker: Broker) -> int:
    wanted = replication_pb2.RangeReadRequest(topic="t", partition=0, end_offset=1)
    (frame,) = [one async for one in broker.ranges.read(wanted.SerializeToString(), CALL)]
    return TOPIC_DENIED if b"not allowed to READ" in frame else 0


class Writing(Call):
    """A stream of one frame, and what is answered to it."""

    def __init__(self, *topics: str) -> None:
        self.frame = pack_frame(
            replication_pb2.RangeWriteRequest(
                request_id=5,
                partitions=[
                    replication_pb2.WrittenPartition(topic=name, records_size=1) for name in topics
                ],
            ).SerializeToString(),
            [b"r" for _ in topics],
        )
        self.answers: list[replication_pb2.RangeWriteResponse] = []

    async def frames(self) -> AsyncIterator[bytes]:
        yield self.frame

    async def write(self, answer: bytes) -> None:
        self.answers.append(replication_pb2.RangeWriteResponse.FromString(answer))

    async def codes(self, broker: Broker) -> list[int]:
        context: Any = self
        await broker.writes.write(self.frames(), context)
        (answer,) = self.answers
        assert answer.request_id == 5
        return [one.error_code for one in answer.outcomes]


async def write(broker: Broker) -> int:
    (code,) = await Writing("t").codes(broker)
    return code


async def init_producer_id(broker: Broker) -> int:
    answer = await broker.writes.init_producer_id(replication_pb2.InitProducerIdRequest(), CALL)
    assert answer.producer_id == (-1 if answer.error_code else 7)
    return answer.error_code


async def commit(broker: Broker) -> int:
    request = groups_pb2.CommitOffsetsRequest(
        group_id="g", offsets=[groups_pb2.GroupOffset(topic="t", offset=5)]
    )
    answer = await broker.offsets.CommitOffsets(request, CALL)
    code: int = answer.error_code or answer.outcomes[0].error_code
    return 0 if code == TOPIC_DENIED else code


async def list_transactions(broker: Broker) -> int:
    """Of those that may not be seen it is told how many there are."""
    request = admin_pb2.ListTransactionsRequest(context=broker.context)
    answer = await broker.reads["ListTransactions"](request)
    assert len(answer.transactions) + answer.hidden == 1
    return TRANSACTION_DENIED if answer.hidden else 0


def reading(rpc: str, request: Any) -> Callable[[Broker], Awaitable[int]]:  # noqa: ANN401 - any message
    async def ask(broker: Broker) -> int:
        request.context.CopyFrom(broker.context)
        code: int = (await broker.reads[rpc](request)).error_code
        return code

    return ask


Row = tuple[Callable[[Broker], Awaitable[int]], Binding, int]
"""How it is asked (error code, 0 where it is answered), the right it takes, the code without."""

_ANY_ACL: Final = admin_pb2.AclFilter(
    resource_type=1, pattern_type=1, operation=1, permission_type=1
)
ROWS: Final[Mapping[str, Row]] = MappingProxyType(
    {
        "Admin/ResignController": (resign, cluster(Op.ALTER), CLUSTER_DENIED),
        "Admin/MoveController": (move, cluster(Op.ALTER), CLUSTER_DENIED),
        "Admin/ClusterStatus": (status, cluster(Op.DESCRIBE), CLUSTER_DENIED),
        "Admin/DescribeAcls": (
            reading("DescribeAcls", admin_pb2.DescribeAclsRequest(filter=_ANY_ACL)),
            cluster(Op.DESCRIBE),
            CLUSTER_DENIED,
        ),
        "Admin/DescribeClientQuotas": (
            reading("DescribeClientQuotas", admin_pb2.DescribeClientQuotasRequest()),
            cluster(Op.DESCRIBE_CONFIGS),
            CLUSTER_DENIED,
        ),
        "Admin/DescribePipelines": (
            reading(
                "DescribePipelines",
                admin_pb2.DescribePipelinesRequest(names=["p"]),
            ),
            acl(WHO, Op.DESCRIBE, ResourceType.GROUP, "p"),
            errors_pb2.GROUP_AUTHORIZATION_FAILED,
        ),
        "Admin/ListTransactions": (
            list_transactions,
            acl(WHO, Op.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "x"),
            TRANSACTION_DENIED,
        ),
        "Admin/DescribeProducers": (
            reading("DescribeProducers", admin_pb2.DescribeProducersRequest(topic="t")),
            topic(Op.READ),
            TOPIC_DENIED,
        ),
        "Admin/AbortTransaction": (
            reading(
                "AbortTransaction",
                admin_pb2.AbortTransactionRequest(transactional_id="x"),
            ),
            cluster(Op.ALTER),
            CLUSTER_DENIED,
        ),
        "MetadataView/WatchMetadata": (watch, cluster(Op.CLUSTER_ACTION), CLUSTER_DENIED),
        "MetadataView/MetadataOffsets": (
            metadata_offsets,
            cluster(Op.CLUSTER_ACTION),
            CLUSTER_DENIED,
        ),
        "MetadataView/ReadMetadataChanges": (
            metadata_changes,
            cluster(Op.CLUSTER_ACTION),
            CLUSTER_DENIED,
        ),
        "RangeRead/DescribeTopics": (describe_topics, topic(Op.DESCRIBE), TOPIC_DENIED),
        "RangeRead/ListOffsets": (list_offsets, topic(Op.DESCRIBE), TOPIC_DENIED),
        "RangeRead/Read": (read, topic(Op.READ), TOPIC_DENIED),
        "RangeWrite/InitProducerId": (
            init_producer_id,
            cluster(Op.IDEMPOTENT_WRITE),
            CLUSTER_DENIED,
        ),
        "GroupOffsets/CommitOffsets": (
            commit,
            acl(WHO, Op.READ, ResourceType.GROUP, "g"),
            errors_pb2.GROUP_AUTHORIZATION_FAILED,
        ),
        "RangeWrite/Write": (write, topic(Op.WRITE), TOPIC_DENIED),
    }
)

SHARED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Admin/DescribeConfigs": "what the Kafka wire asks, too: its matrix has it",
        "Admin/ListConfigEntities": "as ListConfigResources: test_telemetry.py",
        "Admin/DescribeDelegationTokens": "as the Kafka wire: test_token_access.py",
        "Admin/DescribeUserScramCredentials": "what the Kafka wire asks, too: its matrix has it",
    }
)
"""Methods that are tried elsewhere."""


def test_every_method_has_a_row() -> None:
    services = (
        admin_pb2.DESCRIPTOR.services_by_name["Admin"],
        admin_pb2.DESCRIPTOR.services_by_name["MetadataView"],
        replication_pb2.DESCRIPTOR.services_by_name["RangeRead"],
        replication_pb2.DESCRIPTOR.services_by_name["RangeWrite"],
        groups_pb2.DESCRIPTOR.services_by_name["GroupOffsets"],
    )
    served = {f"{service.name}/{method.name}" for service in services for method in service.methods}
    changes = {f"Admin/{change.rpc}" for change in CHANGES}
    assert served - changes - set(ROWS) - set(SHARED) == set()
    assert (set(ROWS) | set(SHARED) | changes) - served == set()


@pytest.mark.parametrize("method", ROWS)
async def test_f5_it_is_asked_for_its_right(method: str) -> None:
    ask, right, denied = ROWS[method]
    pattern, entry = right
    for column, entries in entries_of(kafka_rows.Row(0, {}, (right,), denied)).items():
        who = ANONYMOUS if column == columns.ANONYMOUS else ALICE
        code = await ask(Broker(*entries, who=who))
        assert code == (denied if column in columns.WITHOUT_THE_RIGHT else 0), column
    denial = (pattern, entry._replace(permission=AclPermission.DENY))
    elsewhere = (pattern, entry._replace(host="elsewhere"))
    assert await ask(Broker(elsewhere)) == denied
    assert await ask(Broker(right, who=ANONYMOUS)) == denied
    assert await ask(Broker(denial, super_users=WHO)) == 0


async def test_f5_a_topic_that_may_not_be_seen_is_there_for_nobody() -> None:
    broker = Broker(topic(Op.DESCRIBE))
    every = await broker.ranges.describe_topics(
        replication_pb2.DescribeTopicsRequest(all=True), CALL
    )
    assert [one.topic for one in every.topics] == ["t"]
    named = await broker.ranges.describe_topics(
        replication_pb2.DescribeTopicsRequest(topics=["u", "none", "t"]), CALL
    )
    assert [one.error_code for one in named.topics] == [TOPIC_DENIED, TOPIC_DENIED, 0]


async def test_f5_each_partition_of_a_frame_is_judged_by_its_own_topic() -> None:
    broker = Broker(topic(Op.WRITE))
    assert await Writing("u", "t", "u").codes(broker) == [TOPIC_DENIED, 0, TOPIC_DENIED]


async def test_f5_who_may_write_to_a_topic_gets_a_producer_id() -> None:
    assert await init_producer_id(Broker(topic(Op.WRITE))) == 0


async def test_f5_offsets_are_committed_of_topics_that_may_be_read() -> None:
    group = acl(WHO, Op.READ, ResourceType.GROUP, "g")
    broker = Broker(group, topic(Op.READ))
    request = groups_pb2.CommitOffsetsRequest(
        group_id="g",
        offsets=[
            groups_pb2.GroupOffset(topic=name, partition=0, offset=1) for name in ("u", "t", "none")
        ],
    )
    answer = await broker.offsets.CommitOffsets(request, CALL)
    assert [one.error_code for one in answer.outcomes] == [TOPIC_DENIED, 0, TOPIC_DENIED]
