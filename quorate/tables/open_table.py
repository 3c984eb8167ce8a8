"""Opens a table by its format. The libraries of the other format are not loaded."""

from typing import TYPE_CHECKING

from quorate.tables.table_config import ICEBERG, TableConfig
from quorate.tables.table_errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa

    from quorate.tables.lake_table import LakeTable


def open_table(config: TableConfig, pipeline: str, schema: "pa.Schema") -> "LakeTable":
    """Open a table for a pipeline, or create it with the columns of ``schema``.

    Raises:
        TableError: it cannot be opened, created or written to, or its library is missing.
    """
    try:
        if config.format == ICEBERG:
            from quorate.tables.iceberg_table import open_iceberg

            return open_iceberg(config, pipeline, schema)
        from quorate.tables.delta_table import open_delta

        return open_delta(config, pipeline, schema)
    except ImportError as error:
        raise TableError(f"tables need more: pip install 'quorate[tables]' ({error})") from error
