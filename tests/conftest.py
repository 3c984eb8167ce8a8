"""What every test run does: says which demands lack a test, and leaves no process behind."""

import gc
import os
import signal
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from quorate.cluster.fork_server.fork_servers import close_fork_servers
from tests.support.dead_workers import watch_for_dead_workers
from tests.support.demands import SERVER_PROCESSES, DemandReport, is_full_run, load_demands
from tests.support.examples import DEFAULT, examples
from tests.support.forked_commands import close_command_server
from tests.support.processes import MARK, kill_all, servers, wait_until_gone
from tests.support.work_units import WorkUnits, in_order

TESTS_ROOT = Path(__file__).resolve().parent

DEMANDS = load_demands(TESTS_ROOT / "demands.toml")
SHOWN_WITH_SERVERS = frozenset(test_id for one in DEMANDS.values() for test_id in one.real)

# Shared cores make single examples slow without saying anything about the code. On failure
# hypothesis prints the example, and pytest-randomly the seed of the order in its header.
settings.register_profile(
    "default",
    max_examples=examples(DEFAULT),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("default")


# Commands are tested with no profiles but those of a test.
os.environ["QUORATE_CONFIG"] = os.devnull


def pytest_configure(config: pytest.Config) -> None:
    _let_ctrl_c_reach_children()
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        watch_for_dead_workers()
    if not is_worker and is_full_run(config, TESTS_ROOT):
        config.pluginmanager.register(DemandReport(DEMANDS), "demand-report")


def pytest_collection(session: pytest.Session) -> None:
    """Collect without the garbage collector: ten thousand tests and their modules are no garbage,
    and looking at them again and again takes a tenth of the run."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_order(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Look at the processes themselves where a test shows a demand with voters and brokers."""
    if item.nodeid.partition("[")[0] not in SHOWN_WITH_SERVERS:
        return (yield)
    # A test may have a cluster before it begins, or start one that lives until its fixtures end.
    before = servers(os.environ[MARK])
    try:
        return (yield)
    finally:
        found = max(before, servers(os.environ[MARK]))
        item.user_properties.append((SERVER_PROCESSES, found))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> WorkUnits:
    return WorkUnits(config, log)


def _let_ctrl_c_reach_children() -> None:
    """A shell starts what runs in the background deaf to Ctrl-C, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_process_survives() -> Iterator[None]:
    """Set up first and so torn down last: by then every cluster must be gone."""
    mark = uuid.uuid4().hex
    os.environ[MARK] = mark
    yield
    close_fork_servers()
    close_command_server()
    left = wait_until_gone(mark, timeout_s=20.0)
    kill_all(left)
    assert not left, f"processes outlived the tests that started them: {left}"
