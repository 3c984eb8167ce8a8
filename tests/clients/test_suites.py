"""The clients' own test suites, and how their results are judged.

A short part of Kafka's Java tests always runs, if Maven has fetched them before. The whole suites
are slow, and run from checkouts that the environment names: ``KAFKA_PYTHON_SOURCE=…``,
``AIOKAFKA_SOURCE=…``, ``LIBRDKAFKA_SOURCE=…``, then ``pytest -m slow tests/clients/test_suites.py``
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quorate.cluster.local_cluster_errors import LocalClusterError
from tests.clients.suites import (
    aiokafka,
    confluent,
    findings,
    kafka_kit,
    kafka_python,
    kafkajs,
    librdkafka,
    pytest_suite,
)
from tests.clients.suites.cases import Case
from tests.clients.suites.findings import Expected, Finding
from tests.clients.suites.java_build import CLUSTER_TESTS, NotBuilt, classes_of
from tests.clients.suites.java_process import JavaProcess
from tests.clients.suites.kafka_java import TESTS_JAR, AskedCluster, JavaSuite
from tests.clients.suites.reports import closing_line, line, unexplained
from tests.clients.suites.selection import Selection

pytestmark = [pytest.mark.clients]

EXPECTED = Expected(
    frozenset({"Old.works", "Old.broken", "Old.unsteady"}),
    [
        Finding("share groups are not served", ["Share*"], applicable=False),
        Finding("nothing is served", ["Old.*", "New.test[1]"]),
        Finding("it fails at times", ["*.unsteady"], at_times=True),
    ],
)

QUICK = (
    "AutoTopicCreationTest.testAutoCreateTopicWithMixedConfig",
    "DescribeAuthorizedOperationsTest.testClusterAuthorizedOperations",
    "ListOffsetsIntegrationTest.testThreeCompressedRecordsInOneBatch",
    "PlaintextConsumerAssignTest.testAsyncAssignAndConsumeFromCommittedOffsets",
    "PlaintextConsumerFetchTest.testClassicConsumerFetchRecordLargerThanFetchMaxBytes",
    "PlaintextConsumerSubscriptionTest.testAsyncConsumerRe2JPatternSubscriptionFetch",
    "PlaintextConsumerTest.testClassicConsumerPartitionPauseAndResume",
    "ProducerFailureHandlingTest.testNotEnoughReplicasAfterBrokerShutdown",
    "ProducerIntegrationTest.testTransactionWithAndWithoutSend[0]",
    "ProducerSendWhileDeletionTest.testSendWhileTopicGetRecreated",
)
"""Tests of Kafka's Java clients that take about a second: settings of single brokers, a login,
brokers that stop and start, both protocols of groups, transactions, topics that come and go."""


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_part_of_kafkas_java_tests_passes(tmp_path: Path) -> None:
    """``python -m tests.clients.suites kafka-java`` runs all, and has them fetched first."""
    try:
        path = CLUSTER_TESTS.class_path(may_fetch=False)
    except NotBuilt as reason:
        pytest.skip(str(reason))
    wanted = {name.partition(".")[0] for name in QUICK}
    classes = [one for one in classes_of(path, TESTS_JAR) if one.rpartition(".")[2] in wanted]
    with JavaSuite(path, classes, tmp_path / "tests.log") as suite:
        cases = list(suite.run(QUICK))
    failed = [case for case in cases if case.result != "passed"]
    assert not failed, (failed, (tmp_path / "tests.log").read_text()[-5_000:])


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "cases_of"),
    [
        ("kafka-python", kafka_python.cases),
        ("aiokafka", aiokafka.cases),
        ("confluent-kafka-python", confluent.cases),
        ("librdkafka", librdkafka.cases),
    ],
)
def test_a_suite_has_no_failure_without_a_reason(
    name: str, cases_of: Callable[[Path, Selection], Iterator[Case]]
) -> None:
    variable = name.upper().replace("-", "_") + "_SOURCE"
    if variable not in os.environ:
        pytest.skip(f"{variable} names no checkout of the client")
    expected = Expected.load(name)
    cases = list(cases_of(Path(os.environ[variable]).resolve(), Selection(expected)))
    assert not unexplained([*cases, *expected.gone(cases)], expected), closing_line(
        name, cases, expected
    )


@pytest.mark.parametrize(
    ("case", "standing"),
    [
        (Case("Old.works", "passed"), "passed"),
        (Case("New.works", "passed"), "passed"),
        (Case("New.test[1]", "failed"), "explained"),
        (Case("New.test[2]", "failed"), "unexplained"),
        (Case("New.test1", "failed"), "unexplained"),
        (Case("ShareTest.a", "failed"), "not applicable"),
        (Case("New.local", "skipped", "needs no broker"), "not applicable"),
        (Case("New.unsteady", "failed"), "explained"),
    ],
)
def test_a_failure_is_judged_by_what_is_known(case: Case, standing: str) -> None:
    assert EXPECTED.standing(case) == standing


@pytest.mark.parametrize("result", ["failed", "skipped"])
def test_a_test_that_stops_passing_has_no_excuse_but_to_fail_at_times(result: str) -> None:
    assert EXPECTED.standing(Case("Old.broken", result)) == "unexplained"  # type: ignore[arg-type]
    unsteady = Expected(EXPECTED.passed, EXPECTED.findings[2:])
    assert unsteady.standing(Case("Old.unsteady", "failed")) == "explained"


def test_a_test_that_is_no_longer_run_is_missed() -> None:
    gone = EXPECTED.gone([Case("Old.works", "passed"), Case("Old.broken", "failed")])
    assert [case.name for case in gone] == ["Old.unsteady"]
    assert unexplained(gone, EXPECTED) == gone


def test_every_suite_ends_with_the_same_line() -> None:
    cases = [
        Case("Old.works", "passed"),
        Case("New.test[1]", "failed", "E"),
        Case("New.test[2]", "failed", "F", 1.25),
        Case("ShareTest.a", "skipped", "not run"),
    ]
    assert closing_line("suite", cases, EXPECTED) == (
        "suite: 1 passed, 1 failed with a reason, 1 failed without one, 1 not applicable"
    )
    assert [line(case, EXPECTED).split(maxsplit=1)[0] for case in cases] == [
        *("passed", "explained", "failed", "not"),
    ]
    assert line(cases[1], EXPECTED).endswith("New.test[1]: nothing is served")
    assert line(cases[2], EXPECTED).endswith("1.2 s  New.test[2]: F")


def test_lists_of_suites_are_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "EXPECTED", tmp_path)
    assert Expected.load("suite") == Expected(frozenset(), [])
    findings.write_passed("suite", [Case("b", "passed"), Case("a", "passed"), Case("c", "failed")])
    assert (tmp_path / "suite" / "passed.txt").read_text() == "a\nb\n"
    (tmp_path / "suite" / "findings.toml").write_text('[[finding]]\nreason = "R"\ntests = ["c"]\n')
    assert Expected.load("suite") == Expected(frozenset({"a", "b"}), [Finding("R", ["c"])])


@pytest.mark.parametrize("suite", sorted(path.name for path in findings.EXPECTED.iterdir()))
def test_no_finding_is_about_a_test_that_passes_unless_it_fails_at_times(suite: str) -> None:
    expected = Expected.load(suite)
    assert expected.passed
    both = {
        name for name in expected.passed if (one := expected.finding(name)) and not one.at_times
    }
    assert not both


def test_a_selection_tells_of_the_tests_that_do_not_apply() -> None:
    names = ["Old.works", "Share.a", "Share.b", "New.test[1]"]
    run, left = Selection(EXPECTED).split(names)
    assert run == ["Old.works", "New.test[1]"]
    assert left == [Case("Share.a", "skipped", "not run"), Case("Share.b", "skipped", "not run")]
    assert Selection(EXPECTED, "Share", with_all=True).split(names) == (["Share.a", "Share.b"], [])
    assert Selection(EXPECTED, "*.test[1]").split(names)[0] == ["New.test[1]"]


def test_a_java_tests_cluster_is_what_its_annotations_say() -> None:
    asked = AskedCluster.parse(
        [
            *("brokers=3", "security=PLAINTEXT"),
            *("set:num.partitions=4", "set:no.such.key=1", "set.1:broker.rack=r"),
            "set.3000:default.replication.factor=2",
        ]
    )
    assert asked.brokers == 3
    assert asked.config == {"num.partitions": "4", "default.replication.factor": "2"}
    assert asked.broker_configs == {1: {"broker.rack": "r"}}
    assert asked.left_out == ["no.such.key=1"]


RUNNER = """
import sys
print("TEST\\ta\\tbrokers=1\\nLISTED", flush=True)
for line in sys.stdin:
    _, name, *addresses = line.rstrip().split("\\t")
    if name == "dies":
        break
    if name == "stops a broker":
        print("STOP\\t2", flush=True)
        addresses = [sys.stdin.readline().rstrip()]
    print("RESULT", "passed", *addresses, sep="\\t", flush=True)
    if name == "leaves threads":
        break
    print("READY", flush=True)
"""
"""It speaks like ``SuiteRunner.java``."""


def test_java_is_started_again_when_it_has_ended(tmp_path: Path) -> None:
    java = JavaProcess([sys.executable, "-c", RUNNER], tmp_path / "log")
    assert java.listed() == [["a", "brokers=1"]]
    assert java.run("leaves threads", ["0=x"], {}) == ("passed", "0=x")
    assert java.run("dies", ["0=y"], {}) == ("failed", "the Java process ended")
    assert java.run("a", ["0=z"], {}) == ("passed", "0=z")
    java.end()


def test_a_java_test_has_brokers_stopped_and_is_told_why_they_are_not(tmp_path: Path) -> None:
    stopped: list[int] = []

    def refuse(broker: int) -> None:
        raise LocalClusterError(f"broker {broker} is\nnot there")

    java = JavaProcess([sys.executable, "-c", RUNNER], tmp_path / "log")
    assert java.run("stops a broker", [], {"STOP": stopped.append}) == ("passed", "DONE")
    assert stopped == [2]
    assert java.run("stops a broker", [], {"STOP": refuse})[1] == "FAILED"
    java.end()


KIT_RUNNER = """
import sys
print("BEGIN\\tA", flush=True)
def ask(*fields):
    print(*fields, sep="\\t", flush=True)
    return sys.stdin.readline().rstrip().replace("\\t", " ")
got = ask("CLUSTER", "brokers=2", "set.1:broker.rack=r")
print("CASE", "A.brokers", "passed", "0.5", got, sep="\\t")
print("CASE", "A.stops", "failed", "1", ask("STOP", "1"), sep="\\t")
print("CASE", "A.refused", "skipped", "0", ask("START", "7"), sep="\\t")
print("CASE", "A.ends", "passed", "0", ask("END"), sep="\\t", flush=True)
if sys.argv[1] == "whole":
    print("READY", flush=True)
"""
"""It speaks like ``KitRunner.java``."""


class _FakeCluster:
    """Stands for a running cluster of two brokers."""

    broker_ids = (0, 1)

    def __init__(self) -> None:
        self.done: list[str] = []

    def broker_address(self, broker_id: int) -> str:
        return f"host:{broker_id}"

    def stop_broker(self, broker_id: int) -> None:
        self.done.append(f"stop {broker_id}")

    def restart_broker(self, broker_id: int) -> None:
        raise LocalClusterError(f"there is no\nbroker {broker_id}")


@pytest.mark.parametrize("ending", ["whole", "early"])
def test_tests_that_start_clusters_themselves_are_given_ours(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = _FakeCluster()

    @contextmanager
    def made(*asked: object) -> Iterator[_FakeCluster]:
        cluster.done.append(f"start {asked}")
        yield cluster
        cluster.done.append("end")

    monkeypatch.setattr(kafka_kit, "suite_cluster", made)
    command = [sys.executable, "-c", KIT_RUNNER, ending]
    with (tmp_path / "log").open("w") as log, kafka_kit.KitProcess(command, "A", log) as process:
        cases = list(process.cases())
    assert cases[:4] == [
        Case("A.brokers", "passed", "DONE 0=host:0 1=host:1", 0.5),
        Case("A.stops", "failed", "DONE", 1.0),
        Case("A.refused", "skipped", "FAILED there is no broker 7"),
        Case("A.ends", "passed", "DONE"),
    ]
    ended = Case("A", "failed", "the Java process ended")
    started = (2, kafka_kit.KAFKAS_LIMIT, {1: {"broker.rack": "r"}})
    assert cases[4:] == ([] if ending == "whole" else [ended])
    assert cluster.done == [f"start {started}", "stop 1", "end"]


def test_a_class_of_which_no_test_applies_is_only_told_of() -> None:
    names = ["OldTest", "ShareTest", "NewTest"]
    left = [Case("ShareTest.(all)", "skipped", "not run")]
    assert Selection(EXPECTED).split_classes(names) == (["OldTest", "NewTest"], left)
    assert Selection(EXPECTED, "NewTest.works").split_classes(names) == (["NewTest"], [])


def test_pytests_report_is_read() -> None:
    report = """<testsuites><testsuite>
        <testcase name="a"/>
        <testcase name="b"><failure message="AssertionError: x&#10;more"/></testcase>
        <testcase name="c"><error message="no fixture"/></testcase>
        <testcase name="d"><skipped message="too old"/></testcase>
    </testsuite></testsuites>"""
    assert list(pytest_suite.cases_of(report)) == [
        Case("a", "passed"),
        Case("b", "failed", "AssertionError: x"),
        Case("c", "failed", "no fixture"),
        Case("d", "skipped", "too old"),
    ]


def test_jests_report_of_a_file_is_read() -> None:
    report = """<testsuites><testsuite>
        <testcase classname=" Admin" name="creates"/>
        <testcase classname=" Admin" name="creates"/>
        <testcase classname="Admin" name="fails"><failure>Error: x&#10;more</failure></testcase>
    </testsuite></testsuites>"""
    assert kafkajs.cases_of("a.spec.js", report) == [
        Case("a.spec.js: Admin creates", "passed"),
        Case("a.spec.js: Admin creates (2)", "passed"),
        Case("a.spec.js: Admin fails", "failed", "Error: x"),
    ]


def test_kafkajs_files_are_those_that_ask_a_broker(tmp_path: Path) -> None:
    folder = tmp_path / "src" / "admin"
    folder.mkdir(parents=True)
    (folder / "topics.spec.js").write_text("require('testHelpers')")
    (folder / "local.spec.js").write_text("require('assert')")
    assert kafkajs.files_of(tmp_path) == ["admin/topics.spec.js"]


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


def test_librdkafkas_tests_that_need_a_broker_are_found_in_its_source(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.c").write_text(
        "_TEST_DECL(0001_a);\n    _TEST(0001_a, 0),\n  _TEST(0002_b, TEST_F_LOCAL),\n"
        "  _TEST(0003_c,\n        TEST_F_LOCAL),\n  _TEST(0004_d, TEST_F_KNOWN_ISSUE),\n"
    )
    assert librdkafka.test_names(tmp_path) == ["0001_a", "0004_d"]
