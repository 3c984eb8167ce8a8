"""Who is answered what: API by API, and client by client with other rights (F5).

One broker of Quorate's is asked for every cell of ``expected.toml``. Where Kafka's jars can be had,
`make soak` asks a broker of Kafka's, too. ``differences.toml`` has the cells that differ, and why.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.broker.common.errors import error_name
from quorate.broker.kafka.api_table import api_table
from tests.support.authorization_rows import TOPIC
from tests.support.authorization_table.asking import Addresses, Clients, Table
from tests.support.authorization_table.brokers import kafka_broker, quorate_broker
from tests.support.authorization_table.columns import (
    ANONYMOUS,
    DENIED,
    NO_ACL,
    UNRELATED,
    WITHOUT_THE_RIGHT,
    entries_of,
)
from tests.support.authorization_table.rows import NO_TOPIC, titled_rows
from tests.support.authorization_table.tables import (
    different_cells,
    different_versions,
    expected,
    listed_differences,
    listed_versions,
    written,
)
from tests.support.kafka_jars import NoKafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROWS = titled_rows()


def test_every_api_has_rows_and_every_row_has_all_cells() -> None:
    """Whoever adds an API adds its rows, and reviews what is observed."""
    assert {key for key, _, _ in ROWS} == set(api_table()), "APIs without rows in rows.py"
    titles = [title for _, title, _ in ROWS]
    assert len(set(titles)) == len(titles), "two rows have the same title"
    table = {title: tuple(sorted(entries_of(row))) for _, title, row in ROWS}
    assert {title: tuple(sorted(cells)) for title, cells in expected().items()} == table


FOR_NOBODY = {
    "OffsetForLeaderEpoch v4: CLUSTER_ACTION on CLUSTER, as the follower 7",
    "DescribeConfigs v4: DESCRIBE_CONFIGS on CLUSTER, of the broker's loggers",
    "IncrementalAlterConfigs v1: ALTER_CONFIGS on CLUSTER, of the broker's loggers",
}
"""What Kafka alone does for clients with a right. Here everybody is refused."""


def test_f5_the_reviewed_table_refuses_whoever_has_not_the_right() -> None:
    table = expected()
    for _, title, row in ROWS:
        cells = table[title]
        if title in FOR_NOBODY:
            assert len(set(cells.values())) == 1, title
        elif row.denied:
            code = error_name(row.denied)
            assert code in cells[UNRELATED], title
            assert code in cells[DENIED], title
            assert "AUTHORIZATION_FAILED" in cells[ANONYMOUS], title
            assert "AUTHORIZATION_FAILED" in cells[NO_ACL], title
            for column in cells.keys() - set(WITHOUT_THE_RIGHT):
                assert cells[column] != cells[DENIED], (title, column)


def test_f5_a_refusal_does_not_tell_whether_the_topic_exists() -> None:
    of_whatever_version = {re.sub(r" v\d+", "", title): row for title, row in expected().items()}
    pairs = [
        (row, of_whatever_version[title.replace(NO_TOPIC, TOPIC)])
        for title, row in of_whatever_version.items()
        if title.endswith(f"on TOPIC {NO_TOPIC}")
    ]
    assert len(pairs) >= 11
    for hidden, there in pairs:
        for column in WITHOUT_THE_RIGHT:
            assert hidden[column].replace(NO_TOPIC, TOPIC) == there[column]


def test_f5_each_difference_from_kafka_has_a_reason_and_is_one() -> None:
    table = expected()
    for title, (reason, cells) in listed_differences().items():
        assert len(reason) > 20, title
        assert cells, title
        for column, theirs in cells.items():
            assert table[title][column] != theirs, (title, column)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


async def observed(at: Addresses) -> dict[str, dict[str, str]]:
    clients = Clients(at)
    try:
        return await Table(clients).observe(ROWS)
    finally:
        await clients.close()


async def test_f5_every_client_is_answered_as_the_table_says(folder: Path) -> None:
    with quorate_broker(folder) as at:
        table = await observed(at)
    reviewed = expected()
    assert written(different_cells(reviewed, table)) == ""


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_f5_kafka_answers_the_same_but_for_the_listed_differences(folder: Path) -> None:
    try:
        broker = kafka_broker(folder)
        with broker as at:
            clients = Clients(at)
            versions = await clients.versions()
            await clients.close()
            table = await observed(at)
    except NoKafka as missing:
        pytest.skip(str(missing))
    assert different_versions(versions) == listed_versions()
    differences = {title: dict(cells) for title, (_, cells) in listed_differences().items()}
    assert written(different_cells(expected(), table)) == written(differences)
