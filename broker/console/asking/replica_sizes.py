"""The sizes of replicas, asked of the brokers that have them."""

from collections.abc import Mapping, Sequence

from quorate.broker.console.asking.cluster_requests import ClusterRequests
from quorate.broker.console.asking.console_apis import DESCRIBE_LOG_DIRS
from quorate.broker.console.asking.local_requests import AskFailed
from quorate.broker.console.asking.person import Person
from quorate.common.types import BrokerId


async def replica_sizes(
    requests: ClusterRequests,
    person: Person,
    topic: str,
    wanted: Mapping[BrokerId, Sequence[int]],
) -> dict[tuple[BrokerId, int], int]:
    """Return the bytes of a broker's replica of a partition, as far as the broker says.

    Args:
        requests: asks the brokers.
        person: who asks. Brokers tell those who may DESCRIBE the cluster.
        topic: the topic of the partitions.
        wanted: the partitions of each broker.
    """
    bodies = {
        broker: {"topics": [{"topic": topic, "partitions": list(partitions)}]}
        for broker, partitions in wanted.items()
    }
    answers = await requests.ask_owners(person, DESCRIBE_LOG_DIRS, bodies)
    return {
        (broker, one["partition_index"]): one["partition_size"]
        for broker, answer in answers.items()
        if not isinstance(answer, AskFailed)
        for folder in answer["results"]
        for of_topic in folder["topics"]
        for one in of_topic["partitions"]
        if not one["is_future_key"]
    }
