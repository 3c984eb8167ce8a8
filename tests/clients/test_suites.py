"""The clients' own test suites, from checkouts that the environment names; and how they are judged.

``KAFKA_PYTHON_SOURCE=…``, ``AIOKAFKA_SOURCE=…``, ``LIBRDKAFKA_SOURCE=…``, then
``pytest -m slow tests/clients/test_suites.py``
"""

import os
from pathlib import Path

import pytest

from tests.clients.suites import aiokafka, kafka_python, librdkafka
from tests.clients.suites.cases import Case, judge, table
from tests.clients.suites.clusters import suite_cluster

pytestmark = [pytest.mark.clients]

KNOWN = {"b": "asks for one broker"}


def checkout(variable: str) -> Path:
    if variable not in os.environ:
        pytest.skip(f"{variable} names no checkout of the client")
    return Path(os.environ[variable]).resolve()


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("brokers", [3, 1])
def test_kafka_pythons_integration_tests_pass(brokers: int) -> None:
    source = checkout("KAFKA_PYTHON_SOURCE")
    known = kafka_python.ASKS_FOR_ONE_BROKER if brokers > 1 else {}
    with suite_cluster(brokers, kafka_python.CONFIG) as cluster:
        cases = kafka_python.run(source, cluster.bootstrap)
    assert len(cases) >= 50, "the suite was not run"
    assert not judge(cases, known).unexpected, table("kafka-python", cases, known)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("brokers", [3, 1])
def test_aiokafkas_tests_pass(brokers: int) -> None:
    source = checkout("AIOKAFKA_SOURCE")
    known = aiokafka.ASKS_FOR_ONE_BROKER if brokers > 1 else {}
    with suite_cluster(brokers, aiokafka.CONFIG) as cluster:
        cases = aiokafka.run(source, cluster.bootstrap)
    assert len(cases) >= 150, "the suite was not run"
    assert not judge(cases, known).unexpected, table("aiokafka", cases, known)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_librdkafkas_tests_pass() -> None:
    source = checkout("LIBRDKAFKA_SOURCE")
    with suite_cluster(3, librdkafka.CONFIG) as cluster:
        names = librdkafka.test_names(source)
        cases = list(librdkafka.run(source, cluster.bootstrap, names))
    assert len(cases) >= 80, "the suite was not run"
    known = librdkafka.KNOWN
    assert not judge(cases, known).unexpected, table("librdkafka", cases, known)


def test_a_failure_nobody_gave_a_reason_for_is_unexpected() -> None:
    cases = [Case("a", "passed"), Case("b", "failed", "E"), Case("c", "failed", "F")]
    assert judge(cases, KNOWN).unexpected == [cases[2]]
    assert judge(cases, KNOWN).outdated == []
    assert judge([Case("b", "passed")], KNOWN).outdated == [Case("b", "passed")]


def test_a_table_counts_all_and_names_what_did_not_pass() -> None:
    cases = [Case("a", "passed"), Case("b", "failed", "E"), Case("c", "skipped", "too old")]
    assert table("suite", cases, KNOWN).splitlines() == [
        "suite: 1 passed, 1 failed, 1 skipped",
        "  failed   b: asks for one broker",
        "  skipped  c: too old",
    ]


def test_pytests_report_is_read() -> None:
    report = """<testsuites><testsuite>
        <testcase name="a"/>
        <testcase name="b"><failure message="AssertionError: x&#10;more"/></testcase>
        <testcase name="c"><error message="no fixture"/></testcase>
        <testcase name="d"><skipped message="too old"/></testcase>
    </testsuite></testsuites>"""
    assert list(kafka_python.cases_of(report)) == [
        Case("a", "passed"),
        Case("b", "failed", "AssertionError: x"),
        Case("c", "failed", "no fixture"),
        Case("d", "skipped", "too old"),
    ]


def test_librdkafkas_summary_is_read() -> None:
    summary = """[0001_x / 0.1s] a line of \x1b[36mone\x1b[0m
| <MAIN>                  |     PASSED |   0.201s |
\x1b[32m| 0001_x                  |     PASSED |   0.201s |
\x1b[0m| 0002_y                  |     FAILED |   1.2s | do_it:7: test.c:1 |
| 0003_z                  |    SKIPPED |   0.000s | no RapidJSON
| 0004_local              |    SKIPPED |   0.000s | Filtered due to negative test flags
"""
    assert librdkafka.case_of("0001_x", summary) == Case("0001_x", "passed")
    assert librdkafka.case_of("0002_y", summary) == Case("0002_y", "failed", "do_it:7: test.c:1 |")
    assert librdkafka.case_of("0003_z", summary) == Case("0003_z", "skipped", "no RapidJSON")
    assert librdkafka.case_of("0004_local", summary) is None
    died = librdkafka.case_of("0005_w", summary)
    assert died == Case("0005_w", "failed", "its process ended without a summary")


def test_librdkafkas_tests_are_found_in_its_source(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.c").write_text(
        "_TEST_DECL(0001_a);\n    _TEST(0001_a, 0),\n  _TEST(0002_b, TEST_F_LOCAL),\n"
    )
    assert librdkafka.test_names(tmp_path) == ["0001_a", "0002_b"]
