"""AddPartitionsToTxn (24) from version 4 on: a broker adds or verifies partitions of several
transactions for their producers (KIP-890).

Quorate's brokers ask one another by gRPC. This is for brokers and tools of Kafka's protocol, which
need the right CLUSTER_ACTION.
"""

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.kafka.connection.requests import RequestContext
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.wire.codec import Message
from quorate.common.acl_types import AclOperation
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2

Codes = dict[TopicPartition, int]


async def add_partitions_for_brokers(
    services: KafkaServices, context: RequestContext, request: Message
) -> Message:
    """Add or verify the partitions of each transaction, one transaction after the other.

    If some partitions of a transaction do not exist, none of them are added, and the others get
    OPERATION_NOT_ATTEMPTED.
    """
    results = []
    code: int = errors_pb2.NONE
    try:
        services.authorizer.rights_of(context).require_cluster(AclOperation.CLUSTER_ACTION)
        results = [await _answered(services, one) for one in request["transactions"]]
    except KafkaError as error:
        code = error.code
    return {"throttle_time": 0, "error_code": code, "results_by_transaction": results}


def partition_exists(services: KafkaServices, tp: TopicPartition) -> bool:
    topic = services.metadata.topics.get(tp.topic)
    return topic is not None and 0 <= tp.partition < len(topic.partitions)


async def _answered(services: KafkaServices, transaction: Message) -> Message:
    topics = transaction["topics"]
    tps = [TopicPartition(each["name"], number) for each in topics for number in each["partitions"]]
    codes = await _codes(services, transaction, tps)
    return {
        "transactional_id": transaction["transactional_id"],
        "topic_results": [
            {
                "name": each["name"],
                "results_by_partition": [
                    {
                        "partition_index": number,
                        "partition_error_code": codes[TopicPartition(each["name"], number)],
                    }
                    for number in each["partitions"]
                ],
            }
            for each in topics
        ],
    }


async def _codes(services: KafkaServices, transaction: Message, tps: list[TopicPartition]) -> Codes:
    unknown = {tp for tp in tps if not partition_exists(services, tp)}
    if unknown:
        missing, others = (
            errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
            errors_pb2.OPERATION_NOT_ATTEMPTED,
        )
        return {tp: missing if tp in unknown else others for tp in tps}
    coordinator = services.transactions
    producer = ProducerEpoch(transaction["producer_id"], transaction["producer_epoch"])
    whose = transaction["transactional_id"], producer, frozenset(tps)
    if transaction["verify_only"]:
        return dict(coordinator.verify(*whose))
    return dict(await coordinator.add_for_leader(*whose))
