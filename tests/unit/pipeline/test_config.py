"""A pipeline's file: what it may say, what it says where it is silent, and how it is refused."""

from pathlib import Path
from typing import Any

import pytest

from quorate.common.configuration import ConfigError
from quorate.pipeline.folder_columns import folder_columns
from quorate.pipeline.pipeline_config import SPEC, parse_config, read_config, security_options
from quorate.spark.offset_ranges import EARLIEST
from quorate.spark.options.offset_positions import AtTime, FromEdge
from quorate.spark.options.read_options import GroupCommits
from quorate.spark.options.topic_subscription import Subscription

LEAST: dict[str, Any] = {
    "name": "lake",
    "source.kafka.bootstrap.servers": "h:1",
    "source.subscribe": "orders,payments",
    "sink.path": "/lake",
}


def test_what_is_not_said_has_a_default() -> None:
    config = parse_config(LEAST)
    reading = config.source.reading
    assert (config.name, config.path, config.sql, config.compression) == (
        "lake",
        "/lake",
        "",
        "zstd",
    )
    assert reading.subscription == Subscription(topics=("orders", "payments"))
    assert reading.starting.positions == (FromEdge(EARLIEST),)
    assert reading.fail_on_data_loss
    assert (config.source.limits.at_most, config.lease_ms) == (5_000_000, 30_000)
    assert config.reading == {
        "kafka.bootstrap.servers": "h:1",
        "maxRecordsPerPartition": "1000000",
    }


def test_the_source_takes_the_options_of_the_format() -> None:
    config = parse_config(
        {
            **LEAST,
            "source.startingTimestamp": 1_700_000_000_000,
            "source.includeHeaders": True,
            "source.MAXOFFSETSPERTRIGGER": 10,
            "source.kafka.security.protocol": "SASL_SSL",
            "source.kafka.sasl.username": "u",
            "source.kafka.sasl.password": "p",
            "transform.sql": " SELECT * FROM records; ",
        }
    )
    assert config.source.reading.starting.positions == (AtTime(1_700_000_000_000),)
    assert config.include_headers
    assert config.source.limits.at_most == 10
    assert config.sql == "SELECT * FROM records"
    assert security_options(config) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    assert "startingTimestamp" not in config.reading
    assert config.reading["includeHeaders"] == "true"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nmae": "x"}, "unknown pipeline configuration key 'nmae': did you mean name?"),
        ({"sink.pth": "x"}, "did you mean sink.path?"),
        ({"name": "a/b"}, "name=a/b: must be letters"),
        ({"name": "-x"}, "the first a letter or a digit"),
        ({"sink.format": "orc"}, "sink.format=orc: must be one of parquet"),
        ({"sink.compression": "zip"}, "must be one of zstd"),
        ({"sink.partition.by": "month(timestamp)"}, "is no partition transform"),
        ({"sink.partition.by": "bucket(4,key)"}, "buckets are of tables"),
        ({"sink.partition.by": "identity(Offset)"}, "a folder for every record"),
        ({"sink.partition.by": "identity(partition)"}, "lie by topic and partition anyway"),
        ({"sink.partition.by": "identity(_id)"}, "names begin with an underscore"),
        ({"sink.partition.by": "day(_at)"}, "names begin with an underscore"),
        ({"sink.partition.by": "identity(a),identity(A)"}, "more than one folder a"),
        ({"run.lease.ms": 10}, "must be at least 1000"),
        ({"source.subscribe": ["a"]}, "must be text or a number"),
        ({"source.subscirbe": "a"}, "unknown option 'subscirbe': did you mean 'subscribe'?"),
        ({"source.endingOffsets": "latest"}, "endingOffsets is not for a"),
        ({"source.startingOffsets": "yesterday"}, "startingOffsets is 'yesterday'"),
        ({"source.subscribePattern": "a.*"}, "exactly one of subscribe"),
        ({"source.kafka.sasl.passwrod": "p"}, "sasl.password"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_nearest(
    change: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config({**LEAST, **change})
    assert told in str(refused.value)


@pytest.mark.parametrize("missing", ["name", "sink.path", "source.subscribe"])
def test_what_is_needed_is_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=missing.removeprefix("source.")):
        parse_config({key: value for key, value in LEAST.items() if key != missing})


def test_folders_of_parquet_files_are_named_by_the_columns_that_are_chosen() -> None:
    chosen = {"sink.partition.by": "hour(timestamp), identity(country)"}
    config = parse_config({**LEAST, **chosen})
    assert config.table is None
    assert folder_columns(config.folder_fields) == (
        "topic",
        "partition",
        "timestamp_hour",
        "country",
    )
    assert folder_columns(parse_config(LEAST).folder_fields) == ("topic", "partition", "date")
    assert parse_config({**LEAST, **chosen, "sink.format": "delta"}).folder_fields == ()


def test_a_file_is_named_where_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    with pytest.raises(ConfigError, match="cannot read configuration file"):
        read_config(file)
    file.write_text('[sink]\npath = "/lake"\n')
    with pytest.raises(ConfigError, match=r"p\.toml: missing pipeline configuration: name"):
        read_config(file)


def test_the_guide_tells_every_key_with_its_default() -> None:
    guide = (Path(__file__).parents[3] / "docs/SPARK.md").read_text(encoding="utf-8")
    for key in SPEC:
        default = "required" if key.required else f"`{key.default}`" if key.default else "none"
        assert f"| `{key.name}` | {default} | {key.doc} |" in guide, key.name


def test_batches_do_not_tell_the_group_of_the_pipeline() -> None:
    """The pipeline does, after its commit: a batch that was read may still be dropped."""
    keys = {"source.commitGroup": "lake", "source.commitGroupMayGoBack": True}
    config = parse_config({**LEAST, **keys})
    assert config.source.reading.commits == GroupCommits("lake", may_go_back=True)
    assert not [name for name in config.reading if name.lower().startswith("commit")]


@pytest.mark.parametrize(
    ("source", "subjects"),
    [
        (
            {"source.subscribe": "orders"},
            {"keySubject": "orders-key", "valueSubject": "orders-value"},
        ),
        (
            {"source.subscribe": "orders", "source.valueSubject": "other"},
            {"keySubject": "orders-key", "valueSubject": "other"},
        ),
        ({"source.subscribe": "orders,payments"}, {}),
        ({"source.subscribePattern": "orders.*"}, {}),
    ],
)
def test_the_only_topic_gives_the_subjects_of_schemas(
    source: dict[str, str], subjects: dict[str, str]
) -> None:
    """The query of a batch names partitions, and its check no topic at all."""
    rest = {name: one for name, one in LEAST.items() if name != "source.subscribe"}
    config = parse_config({**rest, **source})
    assert {n: one for n, one in config.reading.items() if n.endswith("Subject")} == subjects
