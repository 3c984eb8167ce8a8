"""Compiled kernels: made once, found again by every process, never taken for what they are not."""

import logging
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quorate.spark.kernels.kernel_compiler import NotAKernel
from quorate.spark.kernels.kernel_declaration import KernelDeclaration
from quorate.spark.kernels.kernel_store import FOLDER_VARIABLE, digest, folders, load_kernel_from
from quorate.spark.kernels.machine_code import Machine
from tests.support.small_kernel_declarations import DIVIDE, SHOUT, SUM

NUMBERS = np.arange(10, dtype=np.int64)
PROCESS = """
import sys
from pathlib import Path
from quorate.spark.kernels.kernel_store import load_kernel_from
from tests.support.small_kernel_declarations import SUM
load_kernel_from(SUM, [Path(sys.argv[1])])
print("numba" in sys.modules)
"""


def run_sum(where: list[Path]) -> int:
    return load_kernel_from(SUM, where)(NUMBERS.ctypes.data, len(NUMBERS))


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_a_kernel_is_made_once_and_then_loaded_without_numba(tmp_path: Path) -> None:
    assert run_sum([tmp_path]) == 45
    assert only_file(tmp_path).name.startswith("total-")
    told = subprocess.run(
        [sys.executable, "-c", PROCESS, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert told.stdout == "False\n"


def test_it_is_kept_in_the_first_folder_that_takes_it(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.touch()
    assert run_sum([not_a_folder, tmp_path / "new"]) == 45
    assert only_file(tmp_path / "new").stat().st_mode & 0o777 == 0o644


def test_it_is_found_in_a_later_folder(tmp_path: Path) -> None:
    run_sum([tmp_path / "later"])
    assert run_sum([tmp_path / "first", tmp_path / "later"]) == 45
    assert not (tmp_path / "first").exists()


@pytest.mark.parametrize("damage", ["torn", "flipped", "empty", "no header"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: str) -> None:
    run_sum([tmp_path])
    file = only_file(tmp_path)
    good = file.read_bytes()
    file.write_bytes(
        {
            "torn": good[:-9],
            "flipped": good[:-200] + bytes([good[-200] ^ 1]) + good[-199:],
            "empty": b"",
            "no header": good.partition(b"\n")[2],
        }[damage]
    )
    assert run_sum([tmp_path]) == 45
    assert file.read_bytes() == good


def test_it_runs_where_nothing_can_be_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.touch()
    with caplog.at_level(logging.WARNING):
        assert run_sum([not_a_folder]) == 45
    assert f"Set {FOLDER_VARIABLE} to a folder" in caplog.text


def test_what_needs_python_is_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(NotAKernel, match=r"shout calls .*Py"):
        load_kernel_from(SHOUT, [tmp_path])
    assert not list(tmp_path.iterdir())


def test_a_kernel_that_raises_is_heard_of(tmp_path: Path) -> None:
    divide = load_kernel_from(DIVIDE, [tmp_path])
    assert divide(6, 3) == 2
    with pytest.raises(RuntimeError, match=r"divide.* raised"):
        divide(6, 0)


@pytest.mark.parametrize(
    "other",
    [
        replace(SUM, sources=(*SUM.sources, "tests.support.small_kernels")),
        replace(SUM, arguments=SUM.arguments[::-1]),
    ],
)
def test_another_kernel_has_another_name(other: KernelDeclaration) -> None:
    machine = Machine.this()
    assert digest(other, machine) != digest(SUM, machine)


def test_another_kind_of_machine_has_its_own_code() -> None:
    machine = Machine.this()
    assert digest(SUM, replace(machine, cpu="another")) != digest(SUM, machine)


def test_a_kernel_may_come_in_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest_of(archive: str, text: str) -> str:
        with zipfile.ZipFile(tmp_path / archive, "w") as file:
            file.writestr("zipped_kernel.py", text)
        monkeypatch.syspath_prepend(tmp_path / archive)
        return digest(replace(SUM, module="zipped_kernel"), Machine.this())

    first = digest_of("1.zip", "kernel = 1")
    assert digest_of("2.zip", "kernel = 2") != first
    assert digest_of("3.zip", "kernel = 1") == first


def test_a_kernel_without_its_text_is_refused() -> None:
    with pytest.raises(RuntimeError, match="the text of no_such_module is not installed"):
        digest(replace(SUM, module="no_such_module"), Machine.this())


def test_the_places_for_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    user = os.getuid()
    temporary = tmp_path / f"quorate-kernels-{user}"
    package = Path("/package")
    of_home = [package / "__pycache__", Path("/home/x/.cache/quorate/kernels"), temporary]
    assert list(folders({"HOME": "/home/x"}, package, user)) == of_home
    of_cache = [package / "__pycache__", Path("/cache/quorate/kernels"), temporary]
    assert list(folders({"HOME": "/home/x", "XDG_CACHE_HOME": "/cache"}, package, user)) == of_cache
    assert list(folders({}, package, user)) == [package / "__pycache__", temporary]
    assert list(folders({FOLDER_VARIABLE: "/chosen"}, package, user)) == [Path("/chosen")]
    assert temporary.stat().st_mode & 0o777 == 0o700


def test_a_kernel_that_is_found_needs_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    package = tmp_path / "package"
    load_kernel_from(SUM, [package / "__pycache__"])
    load_kernel_from(SUM, folders({}, package, os.getuid()))
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_a_temporary_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    user = os.getuid()
    temporary = tmp_path / f"quorate-kernels-{user}"
    temporary.mkdir()
    temporary.chmod(0o777)
    assert temporary not in folders({}, Path("/package"), user)
    assert tmp_path / f"quorate-kernels-{user + 1}" not in folders({}, Path("/package"), user + 1)
