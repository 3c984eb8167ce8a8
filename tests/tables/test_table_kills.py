"""A table service that is killed between its commits, and a campaign of kills."""

from pathlib import Path

import pytest

from quorate.tables.write_mode import WriteMode
from quorate.testing import running_cluster
from tests.tables.campaign import Campaign, Load
from tests.tables.victim import POINTS


@pytest.mark.integration
def test_a_service_that_dies_after_the_commit_of_a_table_adds_nothing_twice(
    tmp_path: Path,
) -> None:
    with running_cluster() as cluster:
        campaign = Campaign(cluster, tmp_path, 1, print)
        campaign.create_topics()
        load = Load(cluster.bootstrap)
        service = campaign.services[0]
        service.start("after table commit", 2)
        service.wait()
        load.stop()
        rows = campaign.check()
    assert min(rows.values()) > 0


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mode", WriteMode)
def test_no_kill_loses_or_repeats_a_row(mode: WriteMode, tmp_path: Path) -> None:
    with running_cluster(3, 3, log_cleaner_backoff_ms=200) as cluster:
        campaign = Campaign(cluster, tmp_path, 7, print, mode)
        campaign.run(2 * len(POINTS))
        campaign.check()
