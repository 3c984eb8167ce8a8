"""Figures are kept for an hour, in bounded memory, and told to those who may see them."""

import math
from collections.abc import Sequence

import pytest

from quorate.broker.console.figures.figure_access import may_see
from quorate.broker.console.figures.figure_history import (
    FigureHistory,
    about,
    group_series,
    topic_series,
)
from quorate.broker.console.figures.quantiles import quantile_ms
from quorate.broker.console.figures.rates import Rates
from quorate.broker.console.figures.sampler import lag_of
from quorate.broker.console.views.series import added, last, thinned, total_now
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.grpc_caller import Caller
from quorate.broker.security.principal import KafkaPrincipal
from quorate.common.acl_types import AclOperation
from quorate.common.acl_types import ResourceType as Resource
from quorate.common.metrics.family import BUCKETS_S
from quorate.common.types import BrokerId, TopicPartition
from tests.support.acls import acl, log_with
from tests.support.followers import ShownImage

NAN = math.nan


def same(left: Sequence[float], right: Sequence[float]) -> bool:
    return len(left) == len(right) and all(
        one == other or (math.isnan(one) and math.isnan(other))
        for one, other in zip(left, right, strict=True)
    )


def test_the_oldest_values_make_room() -> None:
    history = FigureHistory(values_max=3)
    for number in range(5):
        history.begin(number * 10)
        history.put("a", number)
    assert history.values("a") == [2, 3, 4]
    assert history.last_at_ms == 40
    assert history.values("b") == []


def test_a_gap_is_not_a_number() -> None:
    history = FigureHistory(values_max=4)
    for number in range(6):
        history.begin(number)
        if number != 4:
            history.put("a", number)
    assert same(history.values("a"), [2, 3, NAN, 5])


def test_series_without_values_are_forgotten_and_make_room_for_others() -> None:
    history = FigureHistory(values_max=2, series_max=1)
    history.begin(0)
    history.put("a", 1)
    history.put("b", 1)
    assert list(history.names()) == ["a"], "memory is bounded"
    history.begin(1)
    history.begin(2)
    history.put("b", 1)
    assert list(history.names()) == ["b"]


def test_the_largest_of_a_kind_come_first() -> None:
    history = FigureHistory()
    history.begin(0)
    for name, value in (("a", 1), ("b", 3), ("c", 0)):
        history.put(group_series("lag", name), value)
    history.put(topic_series("lag", "t"), 9)
    assert history.largest("lag", "group", history.names()) == ["lag group b", "lag group a"]
    assert history.largest("lag", "group", ["lag group a"]) == ["lag group a"]


def test_names_may_have_blanks_in_them() -> None:
    assert about(group_series("lag", "a b  c")) == ("lag", "group", "a b  c")
    assert about("cpu") == ("cpu", "", "")


def test_rates_are_per_second_and_survive_a_counter_that_begins_again() -> None:
    rates = Rates()
    assert rates.since_last({"a": 100}, 1_000) == {}
    assert rates.since_last({"a": 300, "b": 1}, 3_000) == {"a": 100}
    assert rates.since_last({"a": 50, "b": 1}, 4_000) == {"a": 50, "b": 0}


def test_a_quantile_lies_in_its_bucket() -> None:
    before = [0] * (len(BUCKETS_S) + 1)
    after = list(before)
    after[0], after[4] = 98, 2
    assert quantile_ms(before, before, 0.99) is None
    quantile = quantile_ms(before, after, 0.99)
    assert quantile is not None
    assert 1_000 * BUCKETS_S[3] < quantile <= 1_000 * BUCKETS_S[4]
    assert quantile_ms(after, after, 0.5) is None


def test_the_lag_counts_partitions_whose_end_is_known() -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    assert lag_of({one: 3, two: 5}, {one: 10}) == 7
    assert lag_of({one: 30}, {one: 10}) == 0


def test_a_line_is_thinned_without_losing_its_peak() -> None:
    values = [0.0] * 1_000
    values[500] = 7
    thin = thinned(values, 100)
    assert len(thin) <= 100
    assert max(thin) == 7
    assert same(thinned([1, NAN, 2], 2), [1, 2])


def test_sums_of_series_that_began_at_different_times() -> None:
    assert same(added([[1, 2, 3], [10], [NAN, NAN, NAN]]), [1, 2, 13])
    assert added([]) == []
    assert last([1, 5, NAN]) == 5
    assert last([1, NAN, NAN, NAN]) is None
    assert total_now({BrokerId(1): [1.0], BrokerId(2): [2.0]}) == 3


@pytest.mark.parametrize(
    ("user", "name", "sees"),
    [
        ("operator", "cpu", True),
        ("operator", "lag group g", True),
        ("reader", "cpu", False),
        ("reader", "bytes_in topic orders", False),
        ("reader", "lag group g", True),
        ("reader", "lag group other", False),
        ("half", "lag group g", False),
        ("nobody", "lag group g", False),
    ],
)
def test_figures_need_the_rights_that_kafka_asks_for(user: str, name: str, sees: bool) -> None:
    describe = AclOperation.DESCRIBE
    log = log_with(
        acl("User:operator", describe, Resource.CLUSTER, "kafka-cluster"),
        acl("User:reader", describe, Resource.GROUP, "g"),
        acl("User:reader", describe, Resource.TOPIC, "orders"),
        acl("User:half", describe, Resource.GROUP, "g"),
    )
    authorizer = Authorizer(ShownImage(lambda: log.image), AuthorizerSettings(enabled=True))
    rights = authorizer.rights_of(Caller(KafkaPrincipal(user), "127.0.0.1"))
    assert may_see(rights, name, lambda group: ["orders"]) == sees
