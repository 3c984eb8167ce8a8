"""Applications over a few kills. Longer: ``python -m tests.clients.applications``."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.testing import running_cluster
from tests.clients.applications import connect, streams
from tests.clients.applications.streams import fault_of
from tests.clients.applications.workers import APPLICATIONS
from tests.clients.suites.java_build import NotBuilt

pytestmark = [pytest.mark.clients]

SEED = 5


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        ({"a": [1, 2, 3], "b": [1]}, None),
        ({"a": [1, 2, 2, 3], "b": [1]}, r"'a' was produced 3 times and counted 4 .* twice \[2\]"),
        ({"a": [1, 2, 3]}, r"'b' .* counted 0 times: twice \[\], missing \[1\]"),
        ({"a": [1, 3], "b": [1]}, r"missing \[2\]"),
        ({"a": [1, 3, 2], "b": [1]}, "'a'"),
        ({"a": [1, 2, 3], "b": [1], "c": [1]}, "'c' was produced 0 times"),
    ],
)
def test_a_word_that_was_not_counted_once_shows(
    counts: dict[str, list[int]], fault: str | None
) -> None:
    found = fault_of(counts, Counter({"a": 3, "b": 1}))
    assert found is None if fault is None else re.search(fault, str(found))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("run", [streams.run, connect.run], ids=["streams", "connect"])
def test_everything_is_there_exactly_once(run: Callable[..., str], tmp_path: Path) -> None:
    try:
        APPLICATIONS.class_path(may_fetch=False)
    except NotBuilt as missing:
        pytest.skip(f"Kafka Streams and Connect: {missing}")
    with running_cluster(brokers=3, voters=3) as cluster:
        found = run(cluster, tmp_path, 6, SEED, lambda line: None)
    assert found.endswith(("each counted once", "each once and in order"))
