"""The checked-in protobuf modules are what the proto files say."""

import subprocess
import sys
from pathlib import Path

PROTO = Path(__file__).resolve().parents[2] / "proto"


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


def test_no_generated_module_outlives_its_proto_file() -> None:
    package = PROTO / "quorate_proto" / "v1"
    sources = {path.stem for path in package.glob("*.proto")}
    generated = {path.name.split("_pb2")[0] for path in package.glob("*_pb2*")}
    assert generated == sources


def _checked_in(name: Path) -> str | None:
    path = PROTO / name
    return path.read_text() if path.is_file() else None
