"""The messages in the product's source, for checking what documentation says of them."""

import ast
import functools
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ANYTHING: Final = "…"
"""Stands for what a message fills in, in source and documentation alike."""


@functools.cache
def product_messages() -> tuple[str, ...]:
    """Every string of the product's code, with ``…`` where something is filled in."""
    found: set[str] = set()
    for package in ("metadata_log", "quorum", "broker", "quorate"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found.update(text for node in ast.walk(tree) if (text := _text(node)))
    return tuple(found)


def is_said(message: str) -> bool:
    """Whether some message of the product has the fixed parts of ``message``, in order."""
    fixed = [part.strip() for part in message.split(ANYTHING) if part.strip(" :;,.")]
    pattern = re.compile(".*".join(map(re.escape, fixed)), re.DOTALL)
    return any(pattern.search(said) for said in product_messages())


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[sdr]", ANYTHING, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or ANYTHING for part in node.values)
    return ""
