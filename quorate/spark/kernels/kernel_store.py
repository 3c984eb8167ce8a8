"""Stores kernels as files, and compiles them where the file is missing.

A file is looked for in every folder of `folders`, and written to the first one that is writable.
Its name holds a digest of everything that it was made from, so a new version of the source or the
compiler, or another kind of machine, does not find it and makes its own. Its text holds a digest of
the machine code, so a damaged file is made again. The folders are trusted like Python's own caches
of bytecode.
"""

import functools
import hashlib
import importlib.util
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from quorate.spark.kernels.kernel_declaration import KernelDeclaration
from quorate.spark.kernels.machine_code import KernelFunction, Machine

FOLDER_VARIABLE: Final = "QUORATE_KERNEL_CACHE"
"""The environment variable that names the only folder for kernels."""
_COMPILER_MODULES: Final = (
    "quorate.spark.kernels.kernel_compiler",
    "quorate.spark.kernels.machine_code",
)
_COMPILERS: Final = ("numba", "llvmlite")
_DIGITS: Final = 20

_logger = logging.getLogger(__name__)


@functools.cache
def load_kernel(declaration: KernelDeclaration) -> KernelFunction:
    """Return the kernel, ready to be called with addresses and numbers.

    This takes milliseconds if a file is found, and seconds if numba has to compile the kernel.
    """
    return load_kernel_from(declaration, folders(os.environ, Path(__file__).parent, os.getuid()))


def load_kernel_from(declaration: KernelDeclaration, where: Iterable[Path]) -> KernelFunction:
    """Load the kernel from one of the folders, or compile it and store it in the first writable
    one. A folder is asked for only when the kernel is in none of those before it."""
    machine = Machine.this()
    name = f"{declaration.name}-{digest(declaration, machine)}.kernel"
    tried = []
    for folder in where:
        tried.append(folder)
        if (found := _read(folder / name)) is not None:
            return machine.load(*found, declaration.arguments)
    from quorate.spark.kernels.kernel_compiler import make_object

    symbol, object_file = make_object(declaration, machine)
    _keep(tried, name, _encode(symbol, object_file))
    return machine.load(symbol, object_file, declaration.arguments)


def folders(environment: Mapping[str, str], package: Path, user_id: int) -> Iterator[Path]:
    """Yield the folders for kernels, the best one first.

    The first is beside the package, so that kernels made by an image or an installation serve every
    user. The second is the user's cache. The last is a private folder for temporary files, because
    a container may have no other. It is made when it is asked for.
    """
    if chosen := environment.get(FOLDER_VARIABLE):
        yield Path(chosen)
        return
    yield package / "__pycache__"
    caches = environment.get("XDG_CACHE_HOME")
    home = environment.get("HOME")
    user_cache = Path(caches) if caches else Path(home, ".cache") if home else None
    if user_cache is not None:
        yield user_cache / "quorate" / "kernels"
    temporary = Path(tempfile.gettempdir(), f"quorate-kernels-{user_id}")
    if _make_private(temporary, user_id):
        yield temporary


def digest(declaration: KernelDeclaration, machine: Machine) -> str:
    """Return a digest of everything that the machine code depends on."""
    modules = (declaration.module, *declaration.sources, *_COMPILER_MODULES)
    made_from = hashlib.sha256(repr((declaration, machine)).encode())
    for name in modules:
        made_from.update(_source(name))
    for name in _COMPILERS:
        made_from.update(version(name).encode())
    return made_from.hexdigest()[:_DIGITS]


def _source(module: str) -> bytes:
    """Return the text of a module, which may be in a zip file such as Spark's ``--py-files``."""
    found = importlib.util.find_spec(module)
    get_source = getattr(found.loader, "get_source", None) if found else None
    text: str | None = get_source(module) if get_source else None
    if text is None:
        raise RuntimeError(f"the text of {module} is not installed: kernels are made from it")
    return text.encode()


def _encode(symbol: str, object_file: bytes) -> bytes:
    about = {"symbol": symbol, "sha256": hashlib.sha256(object_file).hexdigest()}
    return json.dumps(about).encode() + b"\n" + object_file


def _read(path: Path) -> tuple[str, bytes] | None:
    """Return the symbol and the object file, or None if the file is missing or damaged."""
    try:
        first, _, object_file = path.read_bytes().partition(b"\n")
        about = json.loads(first)
    except (OSError, ValueError):
        return None
    if about.get("sha256") != hashlib.sha256(object_file).hexdigest():
        return None
    return about["symbol"], object_file


def _keep(where: Sequence[Path], name: str, content: bytes) -> None:
    """Store a file in the first writable folder.

    The file is written under another name and then renamed, because others may be reading it.
    """
    reason: OSError | None = None
    for folder in where:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(content)
            os.chmod(file.name, stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
            os.replace(file.name, folder / name)
        except OSError as error:
            reason = error
            continue
        return
    _logger.warning(
        "no place for compiled kernels: every process takes seconds to compile its own. Set %s to "
        "a folder that can be written to (tried %s): %s",
        FOLDER_VARIABLE, ", ".join(map(str, where)), reason,
    )  # fmt: skip


def _make_private(folder: Path, user_id: int) -> bool:
    """Make the folder, and return True if it belongs to this user alone.

    In a place that all users share, another user may have made it.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return False
    others = stat.S_IRWXG | stat.S_IRWXO
    return stat.S_ISDIR(about.st_mode) and about.st_uid == user_id and not about.st_mode & others
