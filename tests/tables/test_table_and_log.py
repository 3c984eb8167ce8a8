"""A table and the newest records of its topic in one DataFrame, on a real cluster."""

from pathlib import Path

import pytest

from quorate.client.results import ConfigChange
from quorate.cluster.client_options import client_options_of
from quorate.spark.session import local_session
from quorate.tables.table_and_log import table_and_log
from quorate.testing import running_cluster
from tests.support.waiting import wait_until
from tests.tables.campaign import Campaign, Load, consumed

pytestmark = [
    pytest.mark.slow, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)
]  # fmt: skip


def test_rows_of_the_table_and_of_the_log_are_all_rows(tmp_path: Path) -> None:
    with running_cluster() as cluster:
        campaign = Campaign(cluster, tmp_path, 1, print)
        campaign.create_topics()
        load = Load(cluster.bootstrap)
        service = campaign.services[0]
        service.start("after table commit", 3)
        service.wait()
        with cluster.admin() as admin:
            change = ConfigChange("topic", "rows_iceberg", {"table.paused": "true"})
            admin.incremental_alter_configs([change])[0].raise_for_error()
        before = len(consumed(cluster.bootstrap, "rows_iceberg"))
        wait_until(
            lambda: len(consumed(cluster.bootstrap, "rows_iceberg")) > before + 100,
            "records that are in no table",
            timeout_s=60,
        )
        load.stop()
        session = local_session("both")
        try:
            frame = table_and_log(
                session,
                "rows_iceberg",
                bootstrap_servers=cluster.bootstrap,
                settings={"tables.warehouse": str(tmp_path / "warehouse")},
                security=client_options_of(cluster.folder),
            )
            found = sorted(tuple(row) for row in frame.select("partition", "offset").collect())
        finally:
            session.stop()
        expected = sorted(
            (one.partition(), one.offset())
            for one in consumed(cluster.bootstrap, "rows_iceberg")
            if one.value()[:1] != b"\x7e"
        )
    assert found == expected
