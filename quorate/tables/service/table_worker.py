"""One table of a table service, kept by a thread for as long as this process is in charge of it."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from quorate.client.errors import QuorateError
from quorate.client.librdkafka_options import as_librdkafka
from quorate.common.configuration import ConfigError
from quorate.pipeline.batch_runner import RunSummary
from quorate.pipeline.pipeline_errors import RunFenced
from quorate.pipeline.pipeline_planner import PipelinePlanner
from quorate.pipeline.run_progress import RunProgress
from quorate.pipeline.run_setup import run_in_charge, run_owner
from quorate.spark.errors import QuorateSourceError
from quorate.spark.options.option_table import SUBSCRIBE
from quorate.spark.typed.schema_registry import NoSuchSchema
from quorate.tables.dead_letters import DeadLetters
from quorate.tables.lake_table import LakeTable
from quorate.tables.local_rows import LocalRows
from quorate.tables.open_table import open_table
from quorate.tables.service.run_owners import RunOwner, TableFailure
from quorate.tables.service.service_config import ServiceConfig
from quorate.tables.service.table_topics import TableTopic, pipeline_config
from quorate.tables.table_errors import CommitConflict, TableError
from quorate.tables.table_runner import TableRows, TableRunner
from quorate.tables.write_mode import WriteMode

if TYPE_CHECKING:
    from quorate.tables.service.spark_service import SparkService

SMALL_FILE_BYTES: Final = 32 << 20
"""Files that are smaller are joined."""

_logger = logging.getLogger(__name__)


class TableFigures:
    """What is known of a table from outside of its thread. Each field is replaced as a whole."""

    def __init__(self) -> None:
        self.summary = RunSummary()
        self.waiting = 0
        """The number of offsets that waited at the last look."""
        self.caught_up_at_s = time.time()
        """The wall clock of the newest look of which everything is in the table."""
        self.error = ""
        """Why the last run has failed; empty while it works."""
        self.waits_for_schema = False
        """True if it has failed because nothing is registered yet: the first producer does that."""

    def lag_s(self, now_s: float) -> float:
        """Return an upper bound of the age of the oldest record that is not in the table."""
        return max(now_s - self.caught_up_at_s, 0.0) if self.waiting or self.error else 0.0


class TableWorker:
    """Keeps one table until it is stopped, fails, or another process takes over."""

    def __init__(
        self,
        table: TableTopic,
        service: ServiceConfig,
        *,
        take_over: bool,
        failure: TableFailure | None = None,
        spark: "SparkService | None" = None,
    ) -> None:
        """
        Args:
            table: the topic, and what it says of its table.
            service: the configuration of this process.
            take_over: begin even if another run is alive.
            failure: why runs before this one have failed, if the last one has.
            spark: what reads and writes large batches; None if the service does it itself.
        """
        self.table = table
        self._failure = failure
        self._spark = spark
        self.figures = TableFigures()
        self._service = service
        self._take_over = take_over
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"table {table.topic}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the batch that is under way."""
        self._stopped.set()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    @property
    def is_alive(self) -> bool:
        """True until the thread has ended."""
        return self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._keep()
        except RunFenced as error:
            _logger.info("%s: %s", self.table.topic, error)
        except NoSuchSchema as error:
            self.figures.error, self.figures.waits_for_schema = str(error), True
            _logger.warning("table of %s waits for a schema: %s", self.table.topic, error)
        except (QuorateError, QuorateSourceError, ConfigError, OSError) as error:
            self.figures.error = str(error)
            _logger.warning("table of %s: %s; trying again later", self.table.topic, error)
        except Exception as error:
            self.figures.error = f"{type(error).__name__}: {error}"
            _logger.exception("table of %s", self.table.topic)

    def _keep(self) -> None:
        with self._begun() as (run, planner, table):
            run.prepare(time.time_ns() // 1_000_000)
            upkeep_at_s = time.monotonic() + self.table.upkeep_interval_ms / 1000
            while not self._stopped.is_set():
                began_s, looked_at_s = time.monotonic(), time.time()
                planner.look_again()
                run.work()
                self.figures.summary = run.summary
                self.figures.waiting = run.waiting()
                self.figures.caught_up_at_s = looked_at_s
                if self.table.upkeep_interval_ms and time.monotonic() >= upkeep_at_s:
                    self._upkeep(table)
                    upkeep_at_s = time.monotonic() + self.table.upkeep_interval_ms / 1000
                pause_s = self.table.commit_interval_ms / 1000 - (time.monotonic() - began_s)
                self._stopped.wait(max(pause_s, 0.0))

    @contextmanager
    def _begun(self) -> Iterator[tuple[TableRunner, PipelinePlanner, LakeTable]]:
        config = pipeline_config(self.table, self._service)
        assert config.table is not None
        reading = {**config.reading, SUBSCRIBE.name: self.table.topic}
        mode, letters = self.table.write_mode, self._dead_letters()
        with closing(LocalRows(reading, self._service.threads, letters, mode)) as local:
            table = open_table(config.table, config.name, local.schema)
            rows: TableRows = local
            if self._spark is not None and letters is None and mode is WriteMode.APPEND:
                rows = self._spark.rows(config, local)
            run_name = f"{self._service.service_id} {run_owner()}"
            owner = RunOwner(run_name, self._failure, tries_again=True).text
            with run_in_charge(
                config,
                table.sink,
                rows.cancel,
                take_over=self._take_over,
                owner=owner,
                waits=False,
            ) as (charge, planner):
                run = TableRunner(
                    charge,
                    table=table,
                    planner=planner,
                    rows=rows,
                    progress=RunProgress(),
                    mode=mode,
                )
                yield run, planner, table

    def _dead_letters(self) -> DeadLetters | None:
        if not self.table.dead_letter_topic:
            return None
        kafka = {
            "bootstrap.servers": self._service.bootstrap_servers,
            **as_librdkafka(self._service.security),
        }
        return DeadLetters(self.table.dead_letter_topic, self.table.pipeline, kafka)

    def _upkeep(self, table: LakeTable) -> None:
        """Join small files and forget old snapshots; what fails is tried again the next time."""
        try:
            joined = table.compact(SMALL_FILE_BYTES)
            older_than_ms = time.time_ns() // 1_000_000 - self.table.snapshot_retention_ms
            expired = table.expire(older_than_ms)
        except CommitConflict as error:
            _logger.info("upkeep of %s: %s", self.table.topic, error)
        except TableError as error:
            _logger.warning("upkeep of %s: %s", self.table.topic, error)
        else:
            _logger.info(
                "upkeep of %s: %d files became %d, %d snapshots expired",
                self.table.topic,
                joined.files_before,
                joined.files_after,
                expired.snapshots_expired,
            )
