"""SCRAM credentials in a whole cluster: every broker learns of them, and failovers keep them."""

from quorate.broker.changes.table import ALTER_USER_SCRAM_CREDENTIALS
from quorate.metadata_log.image import ScramKey
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.waiting import async_wait_until
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.test_scram import deletion, upsertion


async def alter(
    cluster: Cluster, request: admin_pb2.AlterUserScramCredentialsRequest
) -> list[tuple[str, int]]:
    answer = await cluster.active.perform(ALTER_USER_SCRAM_CREDENTIALS, request)
    assert answer.error_code == errors_pb2.NONE
    return [(one.user, one.error_code) for one in answer.results]


async def test_f3_all_brokers_learn_of_users_and_forget_them(cluster: Cluster) -> None:
    asked = admin_pb2.AlterUserScramCredentialsRequest
    both = asked(upsertions=[upsertion("alice"), upsertion("bob")])
    assert await alter(cluster, both) == [("alice", 0), ("bob", 0)]
    brokers = cluster.brokers.values()
    await async_wait_until(
        lambda: all(ScramKey("bob", 1) in one.follower.image.scram for one in brokers),
        "every broker to know of bob",
    )
    gone = asked(deletions=[deletion("alice"), deletion("ghost")])
    assert await alter(cluster, gone) == [("alice", 0), ("ghost", errors_pb2.RESOURCE_NOT_FOUND)]
    await async_wait_until(
        lambda: all(set(one.follower.image.scram) == {ScramKey("bob", 1)} for one in brokers),
        "every broker to know of bob alone",
    )
