"""Data folders: one owner, one process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.common.files.data_folder import (
    IDENTITY_FILE,
    REPLACE,
    DataFolderError,
    DataFolderInUse,
    DataFolderMismatch,
    claimed_data_folder,
    read_identity,
)
from quorate.common.types import ID_BYTES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "data"


def claim(folder: Path, role: str = "broker", node_id: int = 3, cluster_id: str = "c") -> bytes:
    """Claim and release it; its directory id."""
    with claimed_data_folder(folder, role, node_id, cluster_id) as directory_id:
        return directory_id


def test_new_folder_is_made_and_marked(folder: Path) -> None:
    directory_id = claim(folder)
    identity = json.loads((folder / IDENTITY_FILE).read_bytes())
    assert bytes.fromhex(identity.pop("directory_id")) == directory_id
    assert len(identity.pop("crc32c")) == 8
    assert identity == {"format": 2, "cluster_id": "c", "role": "broker", "node_id": 3}
    assert len(directory_id) == ID_BYTES
    assert read_identity(folder) == ("c", "broker", 3, directory_id)


def test_owner_comes_back_to_the_same_folder(folder: Path) -> None:
    assert claim(folder) == claim(folder)


def test_a_folder_that_was_emptied_is_another_one(folder: Path) -> None:
    before = claim(folder)
    (folder / IDENTITY_FILE).unlink()
    assert read_identity(folder) is None
    assert claim(folder) != before


def test_whoever_has_an_identity_was_prepared(folder: Path) -> None:
    """Else a voter killed at its very first start seems to have lost what it never had."""

    def killed(_path: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), claimed_data_folder(folder, "quorum", 3, "c", killed):
        pass
    assert read_identity(folder) is None
    for times in (1, 1):  # Prepared once, and never again.
        with claimed_data_folder(folder, "quorum", 3, "c", lambda path: (path / "new").mkdir()):
            assert len(list(folder.glob("new"))) == times


def test_identity_without_a_directory_id_is_refused(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / IDENTITY_FILE).write_text(
        '{"format": 1, "cluster_id": "c", "role": "broker", "node_id": 3}'
    )
    with pytest.raises(DataFolderError, match="directory_id"):
        claim(folder)


@pytest.mark.parametrize(
    ("role", "node_id", "cluster_id", "named"),
    [
        ("quorum", 3, "c", "role=broker, not role=quorum"),
        ("broker", 4, "c", "node_id=3, not node_id=4"),
        ("broker", 3, "d", "cluster_id=c, not cluster_id=d"),
    ],
)
def test_another_owner_is_refused_naming_both(
    folder: Path, role: str, node_id: int, cluster_id: str, named: str
) -> None:
    claim(folder)
    with pytest.raises(DataFolderMismatch, match=named):
        claim(folder, role, node_id, cluster_id)
    claim(folder)  # The refusal left nothing locked.


def test_second_claim_is_refused_in_and_outside_of_this_process(folder: Path) -> None:
    other = (
        "import sys; from pathlib import Path\n"
        "from quorate.common.files.data_folder import DataFolderInUse, claimed_data_folder\n"
        "try:\n"
        "    with claimed_data_folder(Path(sys.argv[1]), 'broker', 3, 'c'): pass\n"
        "except DataFolderInUse: sys.exit(7)\n"
    )
    with claimed_data_folder(folder, "broker", 3, "c"):
        with pytest.raises(DataFolderInUse):
            claim(folder)
        done = subprocess.run([sys.executable, "-c", other, str(folder)], check=False)
        assert done.returncode == 7
    claim(folder)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_damaged_identity_is_refused(folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / IDENTITY_FILE).write_bytes(content)
    with pytest.raises(DataFolderError, match=IDENTITY_FILE) as refused:
        claim(folder, "quorum")
    assert str(refused.value).endswith(REPLACE)


def test_newer_format_is_refused(folder: Path) -> None:
    claim(folder)
    (folder / IDENTITY_FILE).write_text(
        '{"format": 3, "cluster_id": "c", "role": "broker", "node_id": 3}'
    )
    with pytest.raises(DataFolderMismatch, match="format 3"):
        claim(folder)


def test_unusable_path_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataFolderError, match=str(file)):
        claim(file)


def as_before_checksums(folder: Path) -> str:
    """Write the identity as the release before did; return it."""
    content = json.loads((folder / IDENTITY_FILE).read_bytes())
    del content["crc32c"]
    written = json.dumps({**content, "format": 1}) + "\n"
    (folder / IDENTITY_FILE).write_text(written)
    return written


def test_an_identity_without_a_checksum_is_rewritten_when_the_folder_is_claimed(
    folder: Path,
) -> None:
    directory_id = claim(folder)
    current = (folder / IDENTITY_FILE).read_bytes()
    old = as_before_checksums(folder)
    assert read_identity(folder) == ("c", "broker", 3, directory_id)
    assert (folder / IDENTITY_FILE).read_text() == old, "reading writes nothing"
    assert claim(folder) == directory_id
    assert (folder / IDENTITY_FILE).read_bytes() == current


def test_no_flipped_bit_of_an_identity_is_believed(folder: Path) -> None:
    claim(folder)
    file = folder / IDENTITY_FILE
    content = file.read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with pytest.raises(DataFolderError, match=r"(?i)identity\.json"):
            claim(folder)
