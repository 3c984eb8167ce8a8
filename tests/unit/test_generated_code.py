"""The checked-in protobuf modules are what the proto files say, and machine code its source.

``make check`` runs all of this; what takes seconds is not part of ``make test`` as well.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from quorate.broker.log.record_walk import code

PRINT_MACHINE_CODE = """
from quorate.broker.log.record_walk.compiler import compiled, module_text
print(module_text(compiled()), end="")
"""
PROTO = Path(__file__).resolve().parents[2] / "proto"


@pytest.mark.slow
def test_generated_protobuf_code_is_fresh(tmp_path: Path) -> None:
    # The generator's plugins are console scripts beside the interpreter that runs it.
    subprocess.run(
        [sys.executable, str(PROTO / "generate.py"), str(tmp_path)],
        check=True,
        timeout=60,
        env={"PATH": str(Path(sys.executable).parent)},
    )
    fresh = {p.relative_to(tmp_path): p.read_text() for p in tmp_path.rglob("*.py*")}
    assert fresh, "the generator wrote nothing"
    stale = [str(name) for name, text in fresh.items() if _checked_in(name) != text]
    assert not stale, f"run `python proto/generate.py`: stale {sorted(stale)}"


@pytest.mark.slow
def test_the_machine_code_of_the_record_walk_is_fresh() -> None:
    """A process of its own: what compiles must not have been told another processor before."""
    fresh = subprocess.run(
        [sys.executable, "-c", PRINT_MACHINE_CODE], check=True, timeout=120, stdout=subprocess.PIPE
    ).stdout.decode()
    checked_in = Path(code.__file__).read_text()
    assert fresh == checked_in, "run `python -m quorate.broker.log.record_walk`"


def test_no_generated_module_outlives_its_proto_file() -> None:
    package = PROTO / "quorate_proto" / "v1"
    sources = {path.stem for path in package.glob("*.proto")}
    generated = {path.name.split("_pb2")[0] for path in package.glob("*_pb2*")}
    assert generated == sources


def _checked_in(name: Path) -> str | None:
    path = PROTO / name
    return path.read_text() if path.is_file() else None
