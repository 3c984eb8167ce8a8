"""Check that what is checked out can be released: ``python -m tests.release_check``."""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.release_check import report
from tests.release_check.environments import (
    SUPPORTED,
    CommandFailed,
    build_archives,
    find_pythons,
    find_uv,
    install,
    pyenv_folder,
    run,
)
from tests.release_check.quick_start import WrongOutput, run_quick_start
from tests.release_check.report import Outcome
from tests.release_check.versions import disagreements, project_version
from tests.support.guide import ROOT
from tests.support.releases.table import git, tags


def tell(*lines: str) -> None:
    """Print lines at once."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release_check", description=__doc__)
    parser.add_argument("--python", action="append", choices=SUPPORTED, help="by default all")
    given = parser.parse_args(words)
    head = git("rev-parse", "HEAD").stdout.decode().strip()
    clean = not git("status", "--porcelain").stdout
    version = project_version(ROOT)
    wrong = disagreements(ROOT, tags(), head)
    if wrong:
        tell(*wrong)
        return 1
    with tempfile.TemporaryDirectory(prefix="quorate-release-") as folder:
        try:
            outcomes = list(_outcomes(given.python or SUPPORTED, version, Path(folder)))
        except CommandFailed as error:
            tell(str(error))
            return 1
    tell(*report.table(outcomes))
    if not outcomes or any(one.failure for one in outcomes):
        return 1
    tell(*report.next_steps(version, head, tagged=version in tags(), clean=clean))
    return 0


def _outcomes(wanted: Sequence[str], version: str, folder: Path) -> Iterator[Outcome]:
    """Yield what became of each archive in each Python that can be had."""
    uv = find_uv(ROOT)
    built = folder / "archives"
    built.mkdir()
    archives = build_archives(ROOT, built)
    pythons = find_pythons(uv, wanted, folder, pyenv_folder(os.environ))
    tell(*report.absent(pythons))
    for python, interpreter in pythons.items():
        for archive in archives if interpreter is not None else ():
            assert interpreter is not None
            place = folder / f"{python}{archive.suffix}"
            place.mkdir()
            yield _outcome(uv, python, interpreter, archive, version, place)


def _outcome(
    uv: Path, python: str, interpreter: Path, archive: Path, version: str, place: Path
) -> Outcome:
    tell(f"Python {python}, {archive.name}")
    try:
        programs = install(uv, interpreter, archive, place)
        up_s = run_quick_start(programs, version, place, run)
    except (CommandFailed, WrongOutput) as error:
        tell(str(error))
        return Outcome(python, archive.name, 0.0, str(error))
    return Outcome(python, archive.name, up_s, "")


if __name__ == "__main__":
    sys.exit(main())
