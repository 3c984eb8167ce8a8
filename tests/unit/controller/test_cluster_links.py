"""A controller and the broken links that brokers report."""

import pytest

from quorate.broker.controller.broker_probes import PROBE_TIMEOUT_MS
from quorate.broker.controller.controller_record import (
    CUT_OFF_RESIGNATION_INTERVAL_MS,
    ControllerRecord,
)
from quorate.broker.controller.link_reports import (
    BELIEVED_MS,
    SETTLE_ANEW_MS,
    SETTLE_MS,
    UNREACHED_MS,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import control_pb2, errors_pb2
from tests.support.virtual_time import pass_time
from tests.unit.controller.cluster import Cluster


def silent(cluster: Cluster, reporter: int, *peers: int) -> control_pb2.ReportLinksRequest:
    """The report of a broker that does not hear others."""
    return control_pb2.ReportLinksRequest(
        broker_id=reporter,
        broker_epoch=cluster.brokers[reporter].epoch,
        silent=[
            control_pb2.SilentPeer(
                broker_id=peer, broker_epoch=cluster.brokers[peer].epoch, broken_ms=250
            )
            for peer in peers
        ],
    )


async def report(cluster: Cluster, reporter: int, *peers: int) -> int:
    """Its error code."""
    answer = await cluster.active.report_links(silent(cluster, reporter, *peers))
    return answer.error_code


async def settle(cluster: Cluster) -> None:
    await pass_time((SETTLE_MS + PROBE_TIMEOUT_MS) / 1000)
    await cluster.at_rest()


async def test_leadership_leaves_a_broker_that_the_others_do_not_hear(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (3, 1, 2), (1, 3, 2))
    for reporter in (1, 2):
        assert await report(cluster, reporter, 3) == errors_pb2.NONE
    await settle(cluster)
    led, followed = cluster.partition("orders", 0), cluster.partition("orders", 1)
    assert (led.leader, led.isr, led.leader_epoch) == (1, (1, 2), 1)
    assert (followed.leader, followed.isr, followed.leader_epoch) == (1, (1, 3, 2), 0), (
        "its leader removes the silent one itself"
    )
    assert cluster.brokers[2].cache.leader(TopicPartition("orders", 0)) == 1
    (alert,) = cluster.active.alerts
    assert "1 and 3, 2 and 3" in alert


async def test_a_decision_waits_until_all_ends_have_reported(cluster: Cluster) -> None:
    """From the first report alone, the controller would take broker 3 for the one that is."""
    await cluster.create_topic("orders", (3, 1, 2), (2, 3, 1))
    await report(cluster, 2, 3)
    await pass_time(SETTLE_MS / 2000)
    await report(cluster, 2, 3, 1)
    await pass_time(SETTLE_MS / 2000)
    assert cluster.partition("orders", 0).leader == 3
    await settle(cluster)
    assert cluster.partition("orders", 0).leader == 3
    assert cluster.partition("orders", 1).leader == 3


async def test_of_a_pair_that_does_not_hear_each_other_the_controller_keeps_one(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    await report(cluster, 2, 1)
    await settle(cluster)
    assert [cluster.partition("orders", n).leader for n in range(3)] == [1, 3, 3]


async def test_a_broker_that_is_cut_off_is_elected_again_when_its_links_have_been_whole_for_a_while(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (3, 1, 2))
    staying = cluster.active._brokers.staying
    for reporter in (1, 2):
        await report(cluster, reporter, 3)
    assert 3 not in staying(cluster.image)
    for reporter in (1, 2):
        await report(cluster, reporter)
    await pass_time(BELIEVED_MS / 1000 - 1)
    assert 3 not in staying(cluster.image), "a link that comes and goes must not move leadership"
    await pass_time(2)
    assert 3 in staying(cluster.image)
    assert cluster.active.alerts == []


async def test_below_min_insync_replicas_leadership_stays_unless_others_can_catch_up() -> None:
    cluster = Cluster(**{"min.insync.replicas": 2})
    await cluster.start_brokers(1, 2, 3)
    await cluster.create_topic("two", (3, 1))
    await cluster.create_topic("three", (3, 1, 2))
    cluster.change_isr("three", 0, (3, 1))
    for reporter in (1, 2):
        await report(cluster, reporter, 3)
    await settle(cluster)
    assert cluster.partition("two").leader == 3, "no side of the cut takes acks=all"
    assert (cluster.partition("three").leader, cluster.partition("three").isr) == (1, (1,))
    await cluster.stop()


async def test_a_controller_that_the_others_do_not_hear_resigns_and_the_next_one_decides(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (1, 2, 3))
    before = cluster.active
    await before.report_links(silent(cluster, 1, 2, 3))
    await settle(cluster)
    assert cluster.controller is not None
    assert cluster.controller.broker_id != 1
    assert cluster.partition("orders").leader == 1, "the next one has heard no report yet"
    for reporter in (2, 3):
        await report(cluster, reporter, 1)
    await settle(cluster)
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2, 3))


@pytest.mark.parametrize("are_answered", [False, True], ids=["cut links", "silent streams"])
async def test_the_office_does_not_go_round_while_all_are_cut_off_from_each_other(
    cluster: Cluster, *, are_answered: bool
) -> None:
    """Where control requests are still answered, each reports at once whom it does not hear."""
    links = {frozenset((1, 2)), frozenset((2, 3)), frozenset((3, 1))}
    cluster.cut_links |= set() if are_answered else links
    tenures = set()
    step_ms = SETTLE_ANEW_MS - 100
    for _ in range((CUT_OFF_RESIGNATION_INTERVAL_MS - 10_000) // step_ms):
        if cluster.controller is not None:
            tenures.add(cluster.active.controller_epoch)
            own = cluster.controller.broker_id
            await report(cluster, own, *({1, 2, 3} - {own}))
        await pass_time(step_ms / 1000)
    assert 3 <= len(tenures) <= 4, "each of them resigned once"
    cluster.cut_links.clear()


async def _take_office_again(cluster: Cluster, broker_id: int) -> None:
    """The controller is cut off and resigns, and a short while later it has the office again."""
    await report(cluster, broker_id, *({1, 2, 3} - {broker_id}))
    await settle(cluster)
    assert cluster.controller is not None
    assert cluster.controller.broker_id != broker_id
    cluster.hand_over(cluster.controller.broker_id, broker_id)
    await cluster.when(lambda: cluster.brokers[broker_id].controller)


async def test_a_controller_that_is_cut_off_anew_resigns_once_more(cluster: Cluster) -> None:
    for _ in range(2):
        await _take_office_again(cluster, 1)
        await cluster.at_rest()


async def test_a_controller_whose_links_broke_before_its_tenure_does_not_resign_once_more(
    cluster: Cluster,
) -> None:
    """Its links carry control requests, and no replication streams: it hears of it a little
    later."""
    await _take_office_again(cluster, 1)
    await pass_time(SETTLE_ANEW_MS / 1000 - 0.05)
    await report(cluster, 1, 2, 3)
    await settle(cluster)
    assert cluster.controller is not None
    assert cluster.controller.broker_id == 1


async def test_a_controller_that_does_not_reach_all_in_between_does_not_resign_once_more(
    cluster: Cluster,
) -> None:
    cluster.cut_links.add(frozenset((1, 2)))
    await _take_office_again(cluster, 1)
    await pass_time(PROBE_TIMEOUT_MS / 1000)
    await report(cluster, 1, 2, 3)
    await settle(cluster)
    assert cluster.controller is not None
    assert cluster.controller.broker_id == 1
    cluster.cut_links.clear()


async def test_b3_reports_of_and_about_earlier_incarnations_do_not_count(cluster: Cluster) -> None:
    await cluster.create_topic("orders", (3, 1, 2))
    old, about_old = silent(cluster, 3, 1, 2), [silent(cluster, one, 3) for one in (1, 2)]
    await cluster.bounce(3)
    await cluster.at_rest()
    leader = cluster.partition("orders").leader
    answer = await cluster.active.report_links(old)
    assert answer.error_code == errors_pb2.STALE_BROKER_EPOCH
    for request in about_old:
        await cluster.active.report_links(request)
    await settle(cluster)
    assert cluster.partition("orders").leader == leader
    assert 3 in cluster.active._brokers.staying(cluster.image)


async def test_a_silent_broker_whose_session_has_ended_is_nobodys_link(cluster: Cluster) -> None:
    about = [silent(cluster, one, 3) for one in (1, 2)]
    await cluster.kill(3)
    await cluster.at_rest()
    for request in about:
        await cluster.active.report_links(request)
    assert cluster.active.alerts == []


async def test_a_controller_that_is_cut_off_and_hears_of_one_link_alone_resigns(
    cluster: Cluster,
) -> None:
    """Brokers 1 and 2 have no stream between them, because broker 3 leads everything."""
    await cluster.create_topic("orders", (3, 1, 2))
    before = cluster.active
    cluster.cut_links |= {frozenset((1, 2)), frozenset((1, 3))}
    await before.report_links(silent(cluster, 1, 3))
    await settle(cluster)
    assert cluster.controller is not None
    assert cluster.controller.broker_id != 1
    assert cluster.partition("orders").leader == 3
    cluster.cut_links.clear()


async def test_of_two_ends_of_a_link_the_one_that_the_controller_does_not_reach_is_cut_off(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (3, 2, 1), (2, 3, 1))
    cluster.cut_links.add(frozenset((1, 2)))
    await report(cluster, 3, 2)
    await settle(cluster)
    assert cluster.partition("orders", 0).leader == 3
    assert cluster.partition("orders", 1).leader == 3
    assert cluster.controller is not None
    assert cluster.controller.broker_id == 1
    cluster.cut_links.clear()


async def test_a_report_that_outlives_those_of_the_same_cut_moves_no_leadership(
    cluster: Cluster,
) -> None:
    await cluster.create_topic("orders", (3, 1, 2))
    await report(cluster, 1, 2)
    await report(cluster, 3, 2)
    await pass_time(SETTLE_MS / 1000 + 1)
    await report(cluster, 3, 2)
    await pass_time((BELIEVED_MS - SETTLE_MS) / 1000)
    (alert,) = cluster.active.alerts
    assert "2 and 3" in alert
    assert "1 and 2" not in alert
    await pass_time(2)
    assert cluster.partition("orders").leader == 3


async def test_a_broker_that_was_busy_for_a_while_does_not_block_a_decision_for_long(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_topic("orders", (3, 1, 2))
    link = frozenset((1, 2))
    cluster.cut_links |= {link, frozenset((1, 3))}
    await cluster.active.report_links(silent(cluster, 2, 3))
    await cluster.active.report_links(silent(cluster, 1, 3))
    monkeypatch.setattr(ControllerRecord, "resign_as_cut_off", _stay)
    for _ in range(int((PROBE_TIMEOUT_MS + SETTLE_MS) / 1000)):
        await pass_time(1)
        await cluster.active.report_links(silent(cluster, 1, 3))
    assert cluster.partition("orders").leader == 3, "it reaches nobody"
    cluster.cut_links.discard(link)
    for _ in range(int((UNREACHED_MS + PROBE_TIMEOUT_MS) / 1000)):
        await pass_time(1)
        for reporter in (1, 2):
            await report(cluster, reporter, 3)
    assert cluster.partition("orders").leader == 1
    cluster.cut_links.clear()


async def _stay(*_: object) -> bool:
    return False
