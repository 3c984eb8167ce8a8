"""What is wrong comes first, and nothing that is well is called wrong."""

from quorate.broker.console.health.topic_health import ClusterHealth
from quorate.broker.console.views.series import is_growing
from quorate.broker.console.views.troubles import (
    Disk,
    QuorumHealth,
    Severity,
    Signs,
    Trouble,
    troubles,
)
from quorate.common.types import BrokerId

ONE, TWO = BrokerId(1), BrokerId(2)
SOUND_QUORUM = QuorumHealth(leader=1, voters=3)


def found(
    health: ClusterHealth | None = None, quorum: QuorumHealth = SOUND_QUORUM, **signs: object
) -> list[Trouble]:
    given: dict[str, object] = {"controller": ONE, **signs}
    return troubles(Signs(health=health or ClusterHealth(), quorum=quorum, **given))  # type: ignore[arg-type]


def titles(*args: object, **signs: object) -> list[str]:
    return [one.title for one in found(*args, **signs)]  # type: ignore[arg-type]


def test_a_sound_cluster_has_no_troubles() -> None:
    assert found() == []


def test_the_worst_comes_first() -> None:
    health = ClusterHealth(offline=2, under_replicated=7, moving=1)
    shown = found(health, offline_topics=["a"], under_replicated_topics=["a", "b"])
    assert [one.severity for one in shown] == [
        Severity.CRITICAL,
        Severity.SERIOUS,
        Severity.NOTE,
    ]
    assert shown[0].title == "2 partitions are offline"
    assert shown[0].detail.endswith("a")
    assert shown[0].query == {"show": "offline"}


def test_one_is_singular() -> None:
    assert titles(ClusterHealth(offline=1)) == ["1 partition is offline"]
    assert titles(ClusterHealth(under_min_isr=1)) == ["1 partition is under min.insync.replicas"]


def test_a_quorum_tells_how_many_more_it_survives() -> None:
    five = found(quorum=QuorumHealth(leader=1, voters=5, silent=(2,)))
    assert (five[0].severity, five[0].title) == (Severity.SERIOUS, "Voter 2 is silent")
    three = found(quorum=QuorumHealth(leader=1, voters=3, silent=(2,)))
    assert three[0].severity == Severity.CRITICAL
    assert "has no majority" in three[0].detail
    assert titles(quorum=QuorumHealth(voters=3)) == ["The metadata quorum has no leader"]
    assert titles(quorum=QuorumHealth(problem="no answer")) == [
        "The metadata quorum does not answer"
    ]


def test_who_may_not_see_the_quorum_is_told_nothing_of_it() -> None:
    assert found(quorum=QuorumHealth(is_hidden=True)) == []


def test_brokers_that_are_away_fenced_or_silent_are_named() -> None:
    shown = titles(away={TWO: 1_200}, not_admitted=[ONE], silent={TWO: "no answer"})
    assert shown == [
        "Broker 2 is away",
        "Broker 1 is fenced",
        "Broker 2 tells the console nothing",
    ]
    assert titles(controller=None) == ["No active controller"]


def test_disks_are_serious_before_they_are_full() -> None:
    assert found(disks={ONE: Disk(84, 100)}) == []
    assert found(disks={ONE: Disk(86, 100)})[0].severity == Severity.SERIOUS
    assert found(disks={ONE: Disk(96, 100)})[0].severity == Severity.CRITICAL
    assert Disk(1, 0).share == 0


def test_the_groups_furthest_behind_are_named_first() -> None:
    assert titles(growing_groups={"a": 2_000.0, "b": 9_000.0}) == [
        "Group b falls behind",
        "Group a falls behind",
    ]


def test_an_alert_of_two_brokers_is_shown_once() -> None:
    assert [one.detail for one in found(alerts=["look", "look"])] == ["look"]


def test_a_lag_grows_if_it_is_large_and_a_tenth_more_than_before() -> None:
    assert is_growing([1_000, 1_050, 1_100, 1_200], 1_000)
    assert not is_growing([1_000, 1_050, 1_080, 1_090], 1_000), "less than a tenth"
    assert not is_growing([10, 20, 30, 40], 1_000), "small"
    assert not is_growing([9_000, 20_000, 30_000, 5_000], 1_000), "it shrinks"
    assert not is_growing([1_000, 2_000], 1_000), "too short to tell"
