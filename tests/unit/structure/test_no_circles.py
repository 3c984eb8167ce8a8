"""No two files of the product import one another, not even for annotations alone.

A reader who follows an import must never come back to where they began. So imports under
``if TYPE_CHECKING`` and inside functions count as well.
"""

import ast
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("broker", "quorum", "metadata_log", "quorate")

KNOWN: Final[Set[frozenset[str]]] = frozenset()
"""Circles that are still there. Nothing may be added, and what is gone is removed here."""


def test_no_file_imports_itself_by_way_of_others() -> None:
    graph = imports(product_files())
    assert len(graph) > 500, "the product was not found"
    found = {frozenset(circle) for circle in circles(graph)}
    assert found == KNOWN, "\n".join(" -> ".join(sorted(each)) for each in found ^ KNOWN)


def test_circles_of_a_made_up_graph_are_found() -> None:
    graph = {
        "a": {"b", "free"},
        "b": {"c"},
        "c": {"a", "d"},
        "d": {"e"},
        "e": {"d"},
        "free": {"d"},
        "alone": {"alone"},
        "last": set[str](),
    }
    assert sorted(sorted(each) for each in circles(graph)) == [
        ["a", "b", "c"],
        ["alone"],
        ["d", "e"],
    ]


def test_a_long_chain_is_followed_to_its_end() -> None:
    chain = {str(place): {str(place + 1)} for place in range(5_000)}
    assert list(circles({**chain, "5000": set()})) == []
    (circle,) = circles({**chain, "5000": {"0"}})
    assert len(circle) == 5_001


def test_imports_for_annotations_and_inside_functions_count(tmp_path: Path) -> None:
    files = {
        "quorate.one": "if TYPE_CHECKING:\n    from quorate.two import Two\n",
        "quorate.two": "def later() -> None:\n    import quorate.rooms.three\n",
        "quorate.rooms": "",
        "quorate.rooms.three": "from quorate import one\nfrom quorate.rooms import four\n",
        "quorate.rooms.four": "import os\n",
    }
    paths = {}
    for name, source in files.items():
        paths[name] = tmp_path / f"{name}.py"
        paths[name].write_text(source)
    graph = imports(paths)
    assert graph["quorate.rooms.three"] == {"quorate.one", "quorate.rooms.four"}
    assert list(map(set, circles(graph))) == [{"quorate.one", "quorate.two", "quorate.rooms.three"}]


def product_files() -> dict[str, Path]:
    """Return every file of the product by the name under which it is imported."""
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts if parts[0] == "quorate" else ("quorate", *parts))
            found.setdefault(name.removesuffix(".__init__"), path)
    return found


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return for each file the other files of the product that it imports, wherever it does so."""
    return {
        name: {one for one in _imported(ast.parse(path.read_text()), files) if one != name}
        for name, path in files.items()
    }


def _imported(tree: ast.AST, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in files:
                    yield name
                elif node.module in files:
                    yield node.module


def circles(graph: Mapping[str, Set[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components with an edge inside (Tarjan, without recursion)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: list[str] = []
    on_stack: set[str] = set()
    for start in graph:
        if start in order:
            continue
        path = [(start, iter(sorted(graph[start])))]
        order[start] = lowest[start] = len(order)
        open_nodes.append(start)
        on_stack.add(start)
        while path:
            node, successors = path[-1]
            for successor in successors:
                if successor not in order:
                    order[successor] = lowest[successor] = len(order)
                    open_nodes.append(successor)
                    on_stack.add(successor)
                    path.append((successor, iter(sorted(graph[successor]))))
                    break
                if successor in on_stack:
                    lowest[node] = min(lowest[node], order[successor])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == order[node]:
                    component = _taken_from(open_nodes, node)
                    on_stack -= set(component)
                    if len(component) > 1 or node in graph[node]:
                        yield component


def _taken_from(stack: list[str], node: str) -> list[str]:
    """Take everything from ``node`` on off the stack."""
    place = stack.index(node)
    taken = stack[place:]
    del stack[place:]
    return taken
