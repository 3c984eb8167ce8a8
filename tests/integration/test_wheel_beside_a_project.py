"""The installed wheel takes no top-level name that a user's own project may want."""

import zipfile
from pathlib import Path

import pytest

from tests.support.installed_wheel import InstalledWheel, install_wheel

pytestmark = [pytest.mark.integration, pytest.mark.slow]

COLLIDING_PACKAGES = ("broker", "quorum", "metadata_log", "common")
OWN_PREFIXES = ("quorate", "pyspark_quorate")
USER_TEST = """
import broker, common, metadata_log, quorum


def test_a_cluster_starts_beside_packages_of_the_same_names(quorate_cluster):
    cluster = quorate_cluster(brokers=1)
    assert cluster.controller_id() is not None
    assert [package.OWNER for package in (broker, common, metadata_log, quorum)] == ["user"] * 4
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    return install_wheel(tmp_path_factory.mktemp("wheel"))


def test_every_top_level_name_of_the_wheel_begins_with_quorate(wheel: InstalledWheel) -> None:
    with zipfile.ZipFile(wheel.wheel) as archive:
        top_level = {name.partition("/")[0] for name in archive.namelist()}
    assert top_level
    assert [name for name in top_level if not name.startswith(OWN_PREFIXES)] == []


def test_a_project_keeps_its_own_packages(wheel: InstalledWheel, tmp_path: Path) -> None:
    """The user's packages are imported first, so every name that Quorate took would be missed."""
    project = tmp_path / "project"
    for name in COLLIDING_PACKAGES:
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text('OWNER = "user"\n')
    (project / "test_orders.py").write_text(USER_TEST)
    printed = wheel.run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", project, project),
        more={"PYTHONPATH": str(project)},
    )
    assert "1 passed" in printed
