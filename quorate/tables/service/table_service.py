"""The loop of a table service: takes tables, watches their workers, and lets go of what changes."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from quorate.client.admin import AdminClient
from quorate.client.errors import QuorateError
from quorate.client.results import Pipeline
from quorate.common.configuration import ConfigError
from quorate.pipeline.run_setup import run_owner
from quorate.tables.service.failures import record_failure
from quorate.tables.service.run_owners import TableFailure, failure_of, parse_owner
from quorate.tables.service.service_config import ServiceConfig
from quorate.tables.service.table_topics import TableTopic, table_topics
from quorate.tables.service.table_worker import TableFigures, TableWorker
from quorate.tables.service.work_sharing import to_take

if TYPE_CHECKING:
    from quorate.tables.service.spark_service import SparkService

RETRY_S: Final = 2.0
RETRY_S_MAX: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0

_logger = logging.getLogger(__name__)


class TableService:
    """Keeps tables until it is stopped."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._workers: dict[str, TableWorker] = {}
        self._failures: dict[str, int] = {}
        self._not_before_s: dict[str, float] = {}
        self._stopped = threading.Event()
        self._spark: SparkService | None = None

    def stop(self) -> None:
        """End `run`; another thread or a signal handler may call this."""
        self._stopped.set()

    def figures(self) -> Mapping[str, TableFigures]:
        """Return the figures of each table that this process keeps, by topic."""
        return {topic: worker.figures for topic, worker in list(self._workers.items())}

    def run(self) -> None:
        """Look at topics and take tables, until `stop` is called; then stop all workers."""
        _logger.info("table service %s", self._config.service_id)
        config = self._config
        try:
            self._open_spark()
            with AdminClient(
                config.bootstrap_servers,
                client_id=f"quorate-tables-{config.service_id}",
                options=dict(config.security),
            ) as admin:
                while not self._stopped.is_set():
                    self._look(admin)
                    self._stopped.wait(config.look_interval_ms / 1000)
        finally:
            for worker in self._workers.values():
                worker.stop()
            for worker in self._workers.values():
                worker.join(STOP_TIMEOUT_S)
            if self._spark is not None:
                self._spark.close()

    def _open_spark(self) -> None:
        """Open Spark's session, if the configuration has a master.

        Raises:
            TableError: there is no Java for Spark.
        """
        if self._config.master:
            from quorate.tables.service.spark_service import SparkService

            self._spark = SparkService(self._config.master, self._config.spark)

    def _look(self, admin: AdminClient) -> None:
        try:
            wanted = {one.topic: one for one in table_topics(admin) if not _is_paused(one)}
            names = [one.pipeline for one in wanted.values()]
            states = {one.name: one for one in admin.describe_pipelines(names)} if names else {}
        except QuorateError as error:
            _logger.warning("looking for tables: %s", error)
            return
        for worker in self._let_go(wanted):
            record_failure(
                admin,
                worker.table.pipeline,
                states.get(worker.table.pipeline),
                worker.figures.error,
                f"{self._config.service_id} {run_owner()}",
            )
        owners = {topic: _owner(states.get(one.pipeline)) for topic, one in wanted.items()}
        for taking in to_take(owners, self._workers.keys(), self._config.service_id):
            if time.monotonic() >= self._not_before_s.get(taking.table, 0.0):
                table = wanted[taking.table]
                state = states.get(table.pipeline)
                failure = None if state is None else failure_of(state, None)
                self._start(table, failure, take_over=taking.take_over)

    def _start(self, table: TableTopic, failure: TableFailure | None, *, take_over: bool) -> None:
        _logger.info("%s table of %s", "taking over" if take_over else "taking", table.topic)
        worker = TableWorker(
            table, self._config, take_over=take_over, failure=failure, spark=self._spark
        )
        self._workers[table.topic] = worker
        worker.start()

    def _let_go(self, wanted: Mapping[str, TableTopic]) -> list[TableWorker]:
        """Stop workers whose topic has changed, and forget those that have ended.

        Returns:
            The workers that have failed.
        """
        failed: list[TableWorker] = []
        for topic, worker in list(self._workers.items()):
            if wanted.get(topic) != worker.table:
                worker.stop()
            if worker.is_alive:
                continue
            del self._workers[topic]
            if worker.figures.error:
                failed.append(worker)
            if worker.figures.waits_for_schema:
                self._not_before_s[topic] = time.monotonic() + RETRY_S
            elif worker.figures.error:
                failures = self._failures[topic] = self._failures.get(topic, 0) + 1
                pause_s = min(RETRY_S * 2 ** (failures - 1), RETRY_S_MAX)
                self._not_before_s[topic] = time.monotonic() + pause_s
        for topic, worker in self._workers.items():
            if worker.figures.summary.batches:
                self._failures.pop(topic, None)
        return failed


def _is_paused(table: TableTopic) -> bool:
    try:
        return table.is_paused
    except ConfigError as error:
        _logger.warning("topic %s: %s", table.topic, error)
        return True


def _owner(state: Pipeline | None) -> str | None:
    """Return the name of the process that is in charge."""
    if state is None or not state.alive:
        return None
    return parse_owner(state.owner).service_id
