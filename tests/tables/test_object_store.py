"""Tables in S3, as moto serves it: data files, metadata and the log of Delta."""

from collections.abc import Iterator

import pytest
from deltalake import DeltaTable
from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

from quorate.tables.delta_table import DeltaLakeTable
from quorate.tables.iceberg_table import IcebergTable, open_catalog
from quorate.tables.open_table import open_table
from quorate.tables.storage import delta_options, files_below, open_storage
from quorate.tables.table_config import TableConfig, table_config
from quorate.tables.table_errors import TableError
from tests.unit.pipeline.world import NAME
from tests.unit.tables.table_world import SCHEMA, TableWorld

FUTURE_MS = 1 << 42

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def storage() -> Iterator[dict[str, str]]:
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    properties = {
        "s3.endpoint": f"http://{host}:{port}",
        "s3.access-key-id": "id",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    try:
        yield properties
    finally:
        server.stop()


def make_bucket(storage: dict[str, str], name: str) -> None:
    S3FileSystem(
        access_key="id",
        secret_key="secret",
        endpoint_override=storage["s3.endpoint"],
        region="us-east-1",
        allow_bucket_creation=True,
    ).create_dir(name)


def config_of(format_: str, storage: dict[str, str], folder: object, bucket: str) -> TableConfig:
    return table_config(
        format=format_,
        location=f"s3://{bucket}/tables/t",
        name="t",
        catalog={"uri": f"sqlite:///{folder}/catalog.db"},
        storage=storage,
    )


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_a_table_in_a_bucket(format_: str, storage: dict[str, str], tmp_path: object) -> None:
    make_bucket(storage, "lake")
    config = config_of(format_, storage, tmp_path, "lake")
    world = TableWorld(31, 24)
    world.open_table = lambda: open_table(config, NAME, SCHEMA)
    world.run()
    world.cluster.reset(7, 3)
    world.run()
    if format_ == "iceberg":
        rows = open_catalog(config).load_table(config.identifier).scan().to_arrow()
    else:
        table = DeltaTable(config.location, storage_options=delta_options(storage))
        rows = table.to_pyarrow_table()
    found = zip(*(rows[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    assert sorted(found) == world.expected()
    opened = open_table(config, NAME, SCHEMA)
    assert isinstance(opened, IcebergTable | DeltaLakeTable)
    files = open_storage(storage)
    orphan = f"{config.location}/data/orphan.parquet"
    with files.new_output(orphan).create() as stream:
        stream.write(b"PAR1")
    opened.expire(FUTURE_MS)
    if format_ == "iceberg":
        assert opened.remove_orphans(FUTURE_MS).orphans_deleted == 1
        assert orphan not in [one.location for one in files_below(files, config.location)]
        assert open_catalog(config).load_table(config.identifier).scan().to_arrow() == rows


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_a_bucket_that_is_not_there_is_told(
    format_: str, storage: dict[str, str], tmp_path: object
) -> None:
    config = config_of(format_, storage, tmp_path, "nowhere")
    with pytest.raises(TableError, match="s3://nowhere/tables/t"):
        open_table(config, NAME, SCHEMA)
