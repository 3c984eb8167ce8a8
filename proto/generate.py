"""Regenerate the checked-in protobuf code: ``python proto/generate.py [OUTPUT]``.

The generated modules are committed so that a user needs no compiler; a test compares them with what
this script writes. grpcio-tools is pinned: newer generators emit code that refuses protobuf 6.
"""

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

SOURCE_ROOT = Path(__file__).resolve().parent


def generate(output: Path) -> None:
    """Write the modules and their stubs for every proto file under ``output``."""
    well_known = resources.files("grpc_tools") / "_proto"
    sources = sorted(str(path) for path in (SOURCE_ROOT / "quorate_proto").rglob("*.proto"))
    arguments = [
        "protoc",
        f"--proto_path={SOURCE_ROOT}",
        f"--proto_path={well_known}",
        f"--python_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_out=quiet:{output}",
        f"--mypy_grpc_out=quiet:{output}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc refused the proto files: see its message above")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE_ROOT)
