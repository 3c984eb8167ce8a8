"""The report of demands without a test: what counts as carrying one, and when a run fails."""

from pathlib import Path

import pytest

from tests.support.demands import Demand, carried_ids, load_demands, missing

pytest_plugins = ["pytester"]

CONFTEST = """
from pathlib import Path
from tests.support.demands import DemandReport, is_full_run, load_demands

def pytest_configure(config):
    root = Path(__file__).resolve().parent
    if is_full_run(config, root):
        config.pluginmanager.register(DemandReport(load_demands(root / "demands.toml")), "report")
"""

ROWS = """
[C1]
says = "due and tested"
due = true

[C2]
says = "due"
due = true

[Q1]
says = "not yet"
due = false
milestone = "quota"
"""

QUIET = ("-p", "no:cacheprovider")
TWO_WORKERS = ("-p", "xdist.plugin", "-n", "2")


@pytest.mark.parametrize(
    ("node_id", "ids"),
    [
        ("tests/a.py::test_c2_failover", {"C2"}),
        ("tests/a.py::Test::test_c1_c15_deposed", {"C1", "C15"}),
        ("tests/a.py::test_failover_c2", set()),
        ("tests/test_c2_x.py::test_plain", set()),
        ("tests/a.py::test_c2", set()),
    ],
)
def test_a_test_carries_the_ids_its_name_begins_with(node_id: str, ids: set[str]) -> None:
    assert carried_ids(node_id) == ids


def test_missing_rows_come_due_first() -> None:
    rows = {
        "Q1": Demand("Q1", "later", due=False, milestone="quota"),
        "C1": Demand("C1", "tested", due=True),
        "C2": Demand("C2", "owed", due=True),
    }
    assert [row.id for row in missing(rows, {"C1"})] == ["C2", "Q1"]


def test_every_row_of_the_list_is_due_or_names_its_milestone() -> None:
    demands = load_demands(Path(__file__).parents[1] / "demands.toml")
    expected = [("C", 22), ("Q", 15), ("E", 6), ("B", 6), ("F", 6), ("D", 4)]
    assert set(demands) == {f"{k}{n}" for k, count in expected for n in range(1, count + 1)}
    assert all(demand.due != bool(demand.milestone) for demand in demands.values())
    assert all(demand.says.endswith(".") for demand in demands.values())


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite of its own in which C1 and, unless skipped, C2 have a test.

    It runs in this process, or in workers that load no plugins, which would cost seconds.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyprojecttoml(
        "[tool.pytest.ini_options]\ntestpaths = ['tests']\nmarkers = ['slow']\n"
    )
    pytester.mkdir("tests")
    _write(pytester, "conftest.py", CONFTEST.replace("tests.support", "tests_support"))
    _write(pytester, "demands.toml", ROWS)
    _write(pytester, "test_one.py", "def test_c1_it(): pass\n")
    _write(pytester, "test_two.py", "def test_plain(): pass\n")
    support = pytester.mkpydir("tests_support")
    source = Path(__file__).parents[1] / "support" / "demands.py"
    (support / "demands.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    pytester.syspathinsert()
    return pytester


def _write(pytester: pytest.Pytester, name: str, text: str) -> None:
    (pytester.path / "tests" / name).write_text(text, encoding="utf-8")


def test_full_run_fails_on_a_due_row_without_a_test(suite: pytest.Pytester) -> None:
    result = suite.runpytest_inprocess(*QUIET)
    result.stdout.fnmatch_lines(
        [
            "C2 *no test (DUE): due",
            "Q1 *no test (later: quota): not yet",
            "1 of 3 demands have a test; 1 due without one",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_full_run_passes_when_only_later_rows_lack_a_test(suite: pytest.Pytester) -> None:
    _write(suite, "test_two.py", "def test_c2_it(): pass\n")
    result = suite.runpytest_inprocess(*QUIET, "-m", "not slow", "tests")
    result.stdout.fnmatch_lines(["2 of 3 demands have a test; 0 due without one"])
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("test_two", "said"),
    [
        ("def test_c2_it(record_property): record_property('server processes', 2)", ""),
        ("def test_c2_it(record_property): record_property('server processes', 0)", "ran without"),
        ("def test_c2_it(): pass", "was not run"),
    ],
)
def test_a_test_of_the_ledger_runs_with_server_processes(
    suite: pytest.Pytester, test_two: str, said: str
) -> None:
    rows = ROWS.replace('says = "due"', 'says = "due"\nreal = ["tests/test_two.py::test_c2_it"]')
    _write(suite, "demands.toml", rows)
    _write(suite, "test_two.py", test_two)
    if said:
        result = suite.runpytest_inprocess(*QUIET)
        result.stdout.fnmatch_lines([f"C2 *not shown: tests/test_two.py::test_c2_it {said}*"])
        assert result.ret == pytest.ExitCode.TESTS_FAILED
    else:
        result = suite.runpytest_subprocess(*QUIET, *TWO_WORKERS)
        assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize(("servers", "shown"), [(2, True), (0, False)])
def test_a_skipped_test_of_the_ledger_leaves_it_to_another_of_its_demand(
    suite: pytest.Pytester, servers: int, shown: bool
) -> None:
    real = '["tests/test_two.py::test_c2_it", "tests/test_two.py::test_c2_away"]'
    _write(suite, "demands.toml", ROWS.replace('says = "due"', f'says = "due"\nreal = {real}'))
    _write(
        suite,
        "test_two.py",
        "import pytest\n"
        f"def test_c2_it(record_property): record_property('server processes', {servers})\n"
        "@pytest.mark.skip\ndef test_c2_away(): pass\n",
    )
    result = suite.runpytest_inprocess(*QUIET)
    assert result.ret == (pytest.ExitCode.OK if shown else pytest.ExitCode.TESTS_FAILED)


def test_skipped_test_carries_nothing(suite: pytest.Pytester) -> None:
    _write(suite, "test_two.py", "import pytest\n@pytest.mark.skip\ndef test_c2_it(): pass\n")
    assert suite.runpytest_inprocess(*QUIET).ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    "narrowed",
    [("tests/test_one.py",), ("-k", "c1"), ("-m", "slow or not slow"), ("--deselect", "x")],
)
def test_partial_run_says_nothing(suite: pytest.Pytester, narrowed: tuple[str, ...]) -> None:
    result = suite.runpytest_inprocess(*QUIET, *narrowed)
    result.stdout.no_fnmatch_line("*no test (*")
    assert result.ret == pytest.ExitCode.OK


def test_run_that_stopped_early_says_nothing(suite: pytest.Pytester) -> None:
    _write(suite, "test_one.py", "def test_c1_it(): assert False\n")
    result = suite.runpytest_inprocess(*QUIET, "-x")
    result.stdout.no_fnmatch_line("*no test (*")


def test_full_run_over_several_workers_sees_all_their_tests(suite: pytest.Pytester) -> None:
    _write(suite, "test_two.py", "def test_c2_it(): pass\n")
    result = suite.runpytest_subprocess(*QUIET, *TWO_WORKERS)
    result.stdout.fnmatch_lines(["2 of 3 demands have a test; 0 due without one"])
    assert result.ret == pytest.ExitCode.OK
