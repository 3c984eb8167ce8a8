"""Translates what Spark itself puts among the options: paths, and the properties of a table.

``load("orders")`` and ``save("orders")`` arrive as the option ``path``. It names topics here.

``CREATE TABLE … USING quorate OPTIONS (…)`` arrives with the properties of the table among the
options, and each option a second time as ``option.NAME``. When the table is read, pyspark 4.3 hands
over none of them, only the columns. So `with_table_options` keeps the options in the metadata of
the first column, and `table_options` finds them there. Secrets are not kept: the metadata of a
column goes into files that are written from the table.
"""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from quorate.spark.errors import OptionError
from quorate.spark.options.option_declaration import Scope

PATH: Final = "path"
PATHS: Final = "paths"
"""Spark's name for the paths of ``load([…])``, a JSON list."""
_TABLE_MARK: Final = "provider"
"""A property of every table, which no option of the source is called."""
_TABLE_OPTION: Final = "option."
_METADATA_KEY: Final = "quorate.options"
_SECRETS: Final = ("password", "jaas", "secret", "token", "user.info")


def own_options(options: Mapping[str, str], scope: Scope | None) -> dict[str, str]:
    """Return the options of the source by their names in lower case.

    Args:
        options: what Spark hands over.
        scope: the kind of query; None if it is not known yet.

    Raises:
        OptionError: a table has a LOCATION, or a path names what an option names as well.
    """
    texts = {key.lower(): value for key, value in options.items()}
    if _TABLE_MARK in texts:
        texts = _options_of_table(texts)
    path, paths = texts.pop(PATH, None), texts.pop(PATHS, None)
    topics = path if paths is None else ",".join(map(str, json.loads(paths)))
    if topics is None:
        return texts
    name = _name_of_path(scope)
    if name in texts:
        raise OptionError(
            f"the topic is named twice, by the path {topics!r} and by option {name}: give one"
        )
    return {**texts, name: topics}


def with_table_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema, with the options of the table that is being created, if one is.

    Raises:
        OptionError: an option is a secret, which would be lost when the table is read.
    """
    texts = {key.lower(): value for key, value in options.items()}
    if _TABLE_MARK not in texts:
        return schema
    kept = _options_of_table(texts)
    for name in kept:
        if any(secret in name for secret in _SECRETS):
            raise OptionError(
                f"option {name} is a secret, and a table keeps none: give it when the table is "
                "read, by spark.read.option(…).table(…), or create a temporary view"
            )
    first, *others = schema.fields
    metadata = {**(first.metadata or {}), _METADATA_KEY: json.dumps(kept)}
    return StructType([StructField(first.name, first.dataType, True, metadata), *others])


def table_options(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """Return the given options, and those that the table was created with behind them."""
    given = {key.lower(): value for key, value in options.items()}
    for field in schema.fields:
        kept = (field.metadata or {}).get(_METADATA_KEY)
        if kept is not None:
            return {**json.loads(kept), **given}
    return given


def _options_of_table(texts: Mapping[str, str]) -> dict[str, str]:
    if "location" in texts:
        raise OptionError(f"a table of topics has no LOCATION: {texts['location']!r}")
    return {
        key: value
        for key, value in texts.items()
        if _TABLE_OPTION + key in texts and not key.startswith(_TABLE_OPTION)
    }


def _name_of_path(scope: Scope | None) -> str:
    if scope is Scope.METADATA:
        raise OptionError("the metadata log has no topics: call load() without a path")
    return "topic" if scope is Scope.WRITE else "subscribe"
