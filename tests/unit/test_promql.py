"""What is read from PromQL expressions."""

import pytest

from tests.support.promql import Matcher, Selector, Series, selectors, what_is_missing

SERIES: Series = {"quorate_up": [{"request": "produce", "le": "1"}], "quorate_all": [{}]}


def test_selectors_are_names_with_their_matchers() -> None:
    expression = (
        'histogram_quantile(0.99, sum by (le, instance) (rate(quorate_b{request="x"}[5m]))) > 1e3 '
        "and on (topic) max_over_time(quorate_c[1h:30s]) != 0"
    )
    assert selectors(expression) == [
        Selector("quorate_b", (Matcher("request", "=", "x"),)),
        Selector("quorate_c", ()),
    ]


@pytest.mark.parametrize(
    ("expression", "missing"),
    [
        ('rate(quorate_up{request="produce"}[5m])', []),
        ('rate(quorate_up{request="Produce"}[5m])', ["quorate_up{request='Produce'}"]),
        ('quorate_up{request=~"prod.*|x"}', []),
        ('quorate_up{request!~"prod.*"}', ["quorate_up{request!~'prod.*'}"]),
        ("sum(quorate_down) or quorate_all", ["quorate_down"]),
        ("sum by (le, instance) (quorate_up)", []),
        ("sum by (id) (quorate_all)", ["id"]),
        ("quorate_all * on (broker) group_left (request) quorate_up", ["broker"]),
    ],
)
def test_what_no_series_has_is_missing(expression: str, missing: list[str]) -> None:
    assert what_is_missing(expression, SERIES) == missing
