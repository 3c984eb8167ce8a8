"""What a voter remembers of the first start."""

from pathlib import Path

import pytest

from quorate.common.files.data_folder import DataFolderError
from quorate.quorum.operations.first_start import (
    FIRST_VOTERS_FILE,
    read_first_voters,
    write_first_voters,
)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    assert read_first_voters(tmp_path) == {}
    directories = {1: b"a" * 16, 2: b"\0" * 16}
    write_first_voters(tmp_path, directories)
    assert read_first_voters(tmp_path) == directories


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2, "voters": {}}', '{"format": 1}'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FIRST_VOTERS_FILE).write_text(content)
    with pytest.raises(DataFolderError, match=FIRST_VOTERS_FILE):
        read_first_voters(tmp_path)
