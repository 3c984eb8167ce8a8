"""The console in a real browser: nothing is refused by its own policy, pages update themselves,
keys and themes work, and every page can be used by people with disabilities.

It needs Chromium and is skipped without it.
"""

import os
import shutil
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quorate.client.results import NewTopic
from quorate.testing.running import RunningCluster, running_cluster
from tests.support.axe_core import axe_script, barriers
from tests.support.console import Browser

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

CHROMIUM: Final = os.environ.get("CHROMIUM") or shutil.which("chromium")
PATHS: Final = (
    "/",
    "/brokers",
    "/brokers/1",
    "/topics",
    "/topics/orders",
    "/topics/orders/records?from=oldest",
    "/topics/orders/replicas?broker-1=1&factor=1",
    "/topics/orders/configs",
    "/groups",
    "/groups/readers",
    "/transactions",
    "/configs",
    "/quotas",
    "/users",
    "/acls",
    "/quorum",
    "/metadata",
    "/metadata/tree",
    "/audit",
)
TEXT: Final = "<img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with running_cluster(brokers=1, has_console=True) as running:
        with running.admin() as admin:
            admin.create_topics([NewTopic(name="orders", num_partitions=3, replication_factor=1)])
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("orders", TEXT, TEXT, 0)
        assert producer.flush(20) == 0
        _fill(running)
        yield running


def _fill(running: RunningCluster) -> None:
    """Let no table be empty whose rows look different from others."""
    settings = {"bootstrap.servers": running.bootstrap, "group.id": "readers"}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    console = Browser(running.console_url(1))
    password = {"password": "p", "again": "p", "iterations": 4_096}
    assert console.send("create-user", user="alice", **password).status == 200
    for user in ("alice", "bob"):
        quota = {"user": user, "key": "producer_byte_rate", "value": 1e6}
        assert console.send("set-quota", **quota).status == 200


@pytest.fixture(scope="module")
def browser(cluster: RunningCluster) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        launched = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:  # noqa: ANN401 - playwright's types need the browser
    context = browser.new_context(color_scheme="light")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_its_own_policy(cluster: RunningCluster, page: Any, scheme: str) -> None:  # noqa: ANN401 - as above
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.emulate_media(color_scheme=scheme)
    for path in PATHS:
        page.goto(cluster.console_url(1) + path, wait_until="load")
        assert page.title() != "hacked", path
    assert not complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_bars_people_with_disabilities(
    cluster: RunningCluster,
    page: Any,  # noqa: ANN401 - as above
    scheme: str,
) -> None:
    script = axe_script()
    if script is None:
        pytest.skip("axe-core is not there: no AXE_CORE, and npm does not fetch it")
    page.emulate_media(color_scheme=scheme)
    found = []
    for path in (*PATHS, "/nowhere"):
        page.goto(cluster.console_url(1) + path, wait_until="load")
        found += barriers(page, script, path)
    page.goto(cluster.console_url(1) + "/quotas")
    page.locator("button", has_text="Remove").first.click()
    page.wait_for_selector("text=Result")
    found += barriers(page, script, "the result of an action")
    assert not found
    page.evaluate("document.querySelector('main').innerHTML += '<input>'")
    assert [one.rule for one in barriers(page, script, "broken on purpose")] == ["label"]


def test_pages_fit_into_narrow_screens(cluster: RunningCluster, page: Any) -> None:  # noqa: ANN401 - as above
    page.set_viewport_size({"width": 400, "height": 800})
    wide = []
    for path in PATHS:
        page.goto(cluster.console_url(1) + path, wait_until="load")
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(path)
    assert not wide


def test_records_are_shown_as_text_when_they_are_unfolded(
    cluster: RunningCluster,
    page: Any,  # noqa: ANN401 - as above
) -> None:
    page.goto(cluster.console_url(1) + "/topics/orders/records?from=oldest")
    page.locator(".record summary").first.click()
    assert page.locator(".record pre").nth(1).inner_text() == TEXT
    assert page.locator("main img").count() == 0


def test_an_open_page_shows_what_has_changed(cluster: RunningCluster, page: Any) -> None:  # noqa: ANN401 - as above
    page.goto(cluster.console_url(1) + "/topics")
    page.wait_for_selector("#live.on")
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name="new-here", num_partitions=1, replication_factor=1)])
    page.wait_for_selector("text=new-here", timeout=60_000)


def test_keys_search_go_and_change_the_theme(cluster: RunningCluster, page: Any) -> None:  # noqa: ANN401 - as above
    page.goto(cluster.console_url(1) + "/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("/")
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=orders**")


def test_a_form_creates_a_topic(cluster: RunningCluster, page: Any) -> None:  # noqa: ANN401 - as above
    page.goto(cluster.console_url(1) + "/topics")
    page.locator("summary", has_text="Create a topic").click()
    page.locator("input[name=name]").fill("by-hand")
    page.locator("input[name=replication]").fill("1")
    page.locator("button", has_text="Create").click()
    page.wait_for_selector("text=created")
