"""Whether data that was written with one Avro schema can be read with another: schema resolution as
Avro's specification describes it."""

from collections.abc import Mapping
from typing import Final

from quorate.broker.registry.schemas.avro_schema import AvroField, AvroType
from quorate.broker.registry.schemas.recursive_comparison import Problems, RecursiveComparison

_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""The types that a reader of a type reads, besides that type itself."""


def avro_problems(reader: AvroType, writer: AvroType) -> Problems:
    """Return why ``reader`` does not read all data of ``writer``."""
    comparison = RecursiveComparison()
    return comparison.run(lambda: _Resolution(comparison).of(reader, writer, "/"))


class _Resolution:
    """Resolves pairs of types. A path says where in the reader's schema a type is."""

    def __init__(self, comparison: RecursiveComparison) -> None:
        self._comparison = comparison

    def of(self, reader: AvroType, writer: AvroType, path: str) -> Problems:
        return self._comparison.visit((reader, writer), lambda: self._resolve(reader, writer, path))

    def _resolve(self, reader: AvroType, writer: AvroType, path: str) -> Problems:
        if writer.kind == "union":
            return [
                problem
                for branch in writer.branches
                for problem in self._union_branch(reader, branch, path)
            ]
        if reader.kind == "union":
            if any(not self.of(one, writer, path) for one in reader.branches):
                return []
            return [f"MISSING_UNION_BRANCH at {path}: no branch reads {_shown(writer)}"]
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTIONS.get(reader.kind, ()):
                return []
            return [f"TYPE_MISMATCH at {path}: {_shown(reader)} does not read {_shown(writer)}"]
        return self._same_kind(reader, writer, path)

    def _union_branch(self, reader: AvroType, branch: AvroType, path: str) -> Problems:
        """Return the problems of data of one branch of the writer's union."""
        problems = self.of(reader, branch, path)
        if not problems or reader.kind == "union":
            return problems
        return [f"MISSING_UNION_BRANCH at {path}: {_shown(branch)} is not read", *problems]

    def _same_kind(self, reader: AvroType, writer: AvroType, path: str) -> Problems:
        match reader.kind:
            case "array":
                return self.of(reader.branches[0], writer.branches[0], f"{path}items/")
            case "map":
                return self.of(reader.branches[0], writer.branches[0], f"{path}values/")
            case "record" | "enum" | "fixed":
                if not _has_name(reader, writer):
                    return [
                        f"NAME_MISMATCH at {path}: expected {writer.full_name}, found "
                        f"{reader.full_name}"
                    ]
                return self._same_name(reader, writer, path)
        return []

    def _same_name(self, reader: AvroType, writer: AvroType, path: str) -> Problems:
        if reader.kind == "fixed" and reader.size != writer.size:
            return [
                f"FIXED_SIZE_MISMATCH at {path}: expected {writer.size} bytes, found {reader.size}"
            ]
        if reader.kind == "enum":
            missing = [one for one in writer.symbols if one not in reader.symbols]
            if missing and not reader.has_default:
                return [f"MISSING_ENUM_SYMBOLS at {path}: {', '.join(missing)}, and no default"]
        return [
            problem
            for number, one in enumerate(reader.fields)
            for problem in self._field(one, writer, f"{path}fields/{number}/")
        ]

    def _field(self, field: AvroField, writer: AvroType, path: str) -> Problems:
        names = {field.name, *field.aliases}
        written = next((one for one in writer.fields if one.name == field.name), None) or next(
            (one for one in writer.fields if one.name in names), None
        )
        if written is not None:
            return self.of(field.type, written.type, f"{path}type/")
        if field.has_default:
            return []
        return [
            f"READER_FIELD_MISSING_DEFAULT_VALUE at {path}: field {field.name} is not in the "
            "writer's schema and has no default"
        ]


def _has_name(reader: AvroType, writer: AvroType) -> bool:
    """Return whether the types have one name. Like Avro's library in Java, this compares names
    without namespaces, and aliases with."""
    return reader.name == writer.name or writer.full_name in reader.aliases


def _shown(one: AvroType) -> str:
    return f"{one.kind} {one.full_name}" if one.full_name else one.kind
