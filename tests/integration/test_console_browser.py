"""The console in a real browser: nothing is refused by its own policy, pages update themselves, and
keys and themes work.

It needs Chromium and is skipped without it. ``AXE_CORE`` may name the file ``axe.min.js`` of npm's
axe-core; then every page is checked for accessibility, too.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from quorate.client.results import NewTopic
from quorate.testing.running import RunningCluster, running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

CHROMIUM: Final = os.environ.get("CHROMIUM") or shutil.which("chromium")
AXE: Final = os.environ.get("AXE_CORE", "")
PATHS: Final = (
    "/",
    "/brokers",
    "/brokers/1",
    "/topics",
    "/topics/orders",
    "/topics/orders/records?from=oldest",
    "/topics/orders/configs",
    "/groups",
    "/transactions",
    "/configs",
    "/quotas",
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
        yield running


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
    barriers: list[object] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.emulate_media(color_scheme=scheme)
    for path in PATHS:
        page.goto(cluster.console_url(1) + path, wait_until="load")
        assert page.title() != "hacked", path
        if AXE:
            found = page.evaluate(f"{Path(AXE).read_text()}; axe.run().then((r) => r.violations)")
            named = [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found]
            barriers += [(path, one) for one in named]
    assert not complaints
    assert not barriers


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
