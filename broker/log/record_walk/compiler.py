"""Compiles the walk: numba makes LLVM code of ``source``, and LLVM machine code of that.

Nothing of the machine that compiles gets into the code, so it is the same wherever it is made. Code
that needed other code or data would have relocations, and is refused.
"""

import base64
import os
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import llvmlite.binding as llvm

TRIPLES: Final = {
    "x86_64": "x86_64-unknown-linux-gnu",
    "aarch64": "aarch64-unknown-linux-gnu",
}
"""The machines that code is made for, as ``platform.machine`` names them, and as LLVM does. The
code for aarch64 has run in an emulator only. Other machines walk in Python."""

_OPTIMIZATION: Final = 3
_LINE_CHARACTERS: Final = 90
_TABLE_AT: Final = struct.Struct("<40xQ12xH")
"""The place of the table of sections, and how many there are, in the header of an ELF file."""
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_RELOCATIONS: Final = (4, 9)
_ALLOCATED: Final = 2
_EXECUTABLE: Final = 4


class NeedsOtherCode(TypeError):
    """The compiled walk cannot stand alone."""


class _Section(NamedTuple):
    kind: int
    flags: int
    data: bytes


def compiled() -> dict[str, bytes]:
    """Return the machine code of the walk for every machine."""
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = "generic", ""
    from quorate.broker.log.record_walk.source import walk

    function: Any = walk
    (signature,) = function.signatures
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return {
        machine: _machine_code(function.inspect_llvm(signature), triple)
        for machine, triple in TRIPLES.items()
    }


def module_text(code: dict[str, bytes]) -> str:
    """Return the text of the module ``code``."""
    lines = [
        '"""The machine code of the walk, made of ``source``: do not edit.',
        "",
        "``python -m quorate.broker.log.record_walk`` makes it anew, and a test compares it.",
        '"""',
        "",
        "from base64 import b64decode",
        "from typing import Final",
        "",
        "CODE: Final[dict[str, bytes]] = {",
    ]
    for machine, bytes_ in code.items():
        text = base64.b64encode(bytes_).decode()
        lines += [f'    "{machine}": b64decode(']
        for at in range(0, len(text), _LINE_CHARACTERS):
            lines.append(f'        "{text[at : at + _LINE_CHARACTERS]}"')
        lines += ["    ),"]
    return "\n".join([*lines, "}", ""])


def _machine_code(llvm_code: str, triple: str) -> bytes:
    target = llvm.Target.from_triple(triple).create_target_machine(
        opt=_OPTIMIZATION, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly(llvm_code)
    module.triple = triple
    module.data_layout = str(target.target_data)
    sections = list(_sections(target.emit_object(module)))
    (code,) = (each for each in sections if each.flags & _EXECUTABLE and each.data)
    if any(
        each.kind in _RELOCATIONS or (each.flags & _ALLOCATED and each.data)
        for each in sections
        if each is not code
    ):
        raise NeedsOtherCode(f"the walk for {triple} needs code or data that is not its own")
    return code.data


def _sections(elf: bytes) -> Iterator[_Section]:
    """Yield the sections of an ELF object file of 64 bits."""
    table, count = _TABLE_AT.unpack_from(elf)
    for index in range(count):
        _, kind, flags, _, at, size, *_ = _SECTION.unpack_from(elf, table + index * _SECTION.size)
        yield _Section(kind, flags, elf[at : at + size])
