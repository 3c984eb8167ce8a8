"""Nothing of a cluster's folder is open to other users of the machine, once it was used."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quorate.testing.running import RunningCluster
from tests.support.cli import quorate, quorate_error

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """As in a user's shell; processes inherit it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """What in the folder others have rights to, with its mode."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in (*folders, *files))):
            status = path.lstat()
            if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o077:
                found[str(path)] = oct(stat.S_IMODE(status.st_mode))
    return found


def test_f10_no_file_of_a_cluster_is_open_to_others(
    quorate_cluster: Callable[..., RunningCluster], tmp_path: Path
) -> None:
    cluster = quorate_cluster(brokers=1)
    at = ("--data", str(cluster.folder))
    password = tmp_path / "password"
    password.write_text("secret")
    quorate("topics", "create", "--topic", "orders", *at)
    quorate("users", "add", "ann", "--password-file", str(password), *at)
    quorate("produce", "--topic", "orders", *at, stdin=b"hello\n")
    quorate("consume", "--topic", "orders", "--from-beginning", "--timeout-ms", "2000", *at)
    backup = cluster.folder / "backup"
    quorate("quorum", "backup", "--output", str(backup), *at)
    assert (cluster.folder / "broker-1" / "audit.log").exists()
    assert open_to_others(cluster.folder) == {}


def test_a_folder_that_was_wider_is_narrowed_when_the_cluster_starts(
    quorate_cluster: Callable[..., RunningCluster],
) -> None:
    cluster = quorate_cluster(brokers=1)
    at = ("--data", str(cluster.folder))
    quorate("down", *at)
    for path in (cluster.folder, *cluster.folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for keystore in (cluster.folder / "certs").glob("*.pem"):
        keystore.chmod(0o600)
    said = quorate_error("up", "--detach", *at, code=0)
    try:
        assert "other users had rights to" in said
        assert open_to_others(cluster.folder) == {}
    finally:
        quorate("down", *at)
