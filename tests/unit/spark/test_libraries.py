"""Libraries that are missing or of another version are told at import, by name."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from quorate.spark.libraries import (
    NEEDED,
    NEEDED_FOR_SCHEMAS,
    PYSPARK_SERIES,
    UnfitLibrary,
    check_libraries,
    refuse_missing,
    refuse_other_pyspark,
)
from tests.support.guide import ROOT


def test_what_is_installed_here_fits() -> None:
    check_libraries()


def test_the_extra_brings_what_is_needed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["spark"]
    found = {requirement.partition("=")[0].rstrip("><") for requirement in extra}
    assert found == {*NEEDED, *NEEDED_FOR_SCHEMAS}
    (pinned,) = (one for one in extra if one.startswith("pyspark"))
    assert pinned.startswith(f"pyspark=={PYSPARK_SERIES}.")


@pytest.mark.parametrize("version", ["4.3.0", "4.3.1", "4.3.0.dev1"])
def test_fitting_versions(version: str) -> None:
    refuse_other_pyspark(version, "/spark/__init__.py")


@pytest.mark.parametrize("version", ["3.5.1", "4.2.0", "4.30.0", "5.0.0"])
def test_other_versions_are_named_with_their_place(version: str) -> None:
    with pytest.raises(UnfitLibrary, match=rf"pyspark 4\.3, but finds {version} in /opt/spark"):
        refuse_other_pyspark(version, "/opt/spark/__init__.py")


def test_missing_libraries_are_named_with_what_to_do() -> None:
    says = r"does not find numba, numpy: `pip install 'quorate\[spark\]'`"
    with pytest.raises(UnfitLibrary, match=says):
        refuse_missing(["numba", "numpy"])


@pytest.mark.parametrize("module", ["quorate.spark", "quorate.spark.session"])
def test_importing_tells_it_before_anything_else_fails(tmp_path: Path, module: str) -> None:
    """An older pyspark has no such thing as a Python source: that must not be the error."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.1'\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {module}"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = told.stderr.strip().splitlines()[-1]
    assert "UnfitLibrary: quorate.spark is made for pyspark 4.3, but finds 3.5.1 in" in last
