"""How fast Spark reads from a deployment, by executors and by brokers.

Three hosts with a voter and a broker each, as network namespaces, set up as docs/DEPLOY.md says;
Spark's standalone master is on the first, a worker on each of the others, and the driver on a
fourth. The query reads all values of a topic with RF 3 (`sum(length(value))`). "cores" is of all
executors together: one executor with one core, two with one each, and two with two each. "leaders"
is how many brokers lead the partitions. Planning is part of the time; starting executors is not.
All hosts share this machine's cores: how reading grows with hosts of its own it does not show.
Needs the right to make network namespaces.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench._support import Bench
from tests.support import spark_driver
from tests.support.checked_records import Plan, fill
from tests.support.deployment import deployment
from tests.support.network_console import Console
from tests.support.network_lab import address_of, why_not
from tests.support.spark_hosts import SparkHosts
from tests.support.three_hosts import CLUSTER_PORTS, CONSOLE, HOSTS

PARTITIONS: Final = 12
RECORD_BYTES: Final = 1_000
CORES_OF_A_WORKER: Final = 2
SESSION_TIMEOUT_MS: Final = 6_000
EXECUTORS: Final[Mapping[int, tuple[int, int]]] = {1: (1, 1), 2: (2, 1), 4: (2, 2)}
"""Cores → executors, and cores of each."""
LEADERS: Final[Mapping[int, Sequence[int]]] = {1: (1,), 3: HOSTS}
_PATIENCE_S: Final = 600.0


def main() -> None:
    """Fill a topic for each set of leaders, and read them by each set of executors."""
    bench = Bench.from_command_line("Spark over hosts", __doc__ or "")
    if reason := why_not():
        print(f"not measured: {reason}", file=sys.stderr)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quorate-bench-")))
        deployed = stack.enter_context(
            deployment(
                folder,
                brokers=True,
                broker_settings=('"log.flush" = "os"',),
                session_timeout_ms=SESSION_TIMEOUT_MS,
            )
        )
        spark = stack.enter_context(
            SparkHosts(deployed.lab, folder / "spark", cores=CORES_OF_A_WORKER)
        )
        driver = stack.enter_context(Console(deployed.lab.namespace(CONSOLE)))
        for count, leaders in LEADERS.items():
            plan = _plan(bench, count, leaders)
            print(f"  filling {plan.topic}", file=sys.stderr)
            addresses = [f"{address_of(host)}:{CLUSTER_PORTS['broker']}" for host in HOSTS]
            filling = deployed.console.begin(fill, deployed.hosts.bootstrap, addresses, plan)
            filling.result(timeout=_PATIENCE_S)
        for cores, (executors, cores_of_each) in EXECUTORS.items():
            settings = {
                **spark.driver_settings,
                "spark.cores.max": str(cores),
                "spark.executor.cores": str(cores_of_each),
            }
            driver.begin(spark_driver.start_session, spark.master, settings).result(_PATIENCE_S)
            driver.begin(spark_driver.wait_for_executors, executors).result(_PATIENCE_S)
            for leaders_count in LEADERS:
                options = {
                    "kafka.bootstrap.servers": deployed.hosts.bootstrap,
                    "subscribe": _topic(leaders_count),
                }
                _measure(bench, driver, options, {"cores": cores, "leaders": leaders_count})
        driver.begin(spark_driver.stop_session).result(_PATIENCE_S)
    bench.finish()


def _topic(leaders: int) -> str:
    return f"led-by-{leaders}"


def _plan(bench: Bench, count: int, leaders: Sequence[int]) -> Plan:
    """As many records of plain, idempotent and transactional producers each."""
    records = bench.pick(full=20_000, quick=3_000)
    return Plan(
        topic=_topic(count),
        leaders=[leaders[number % len(leaders)] for number in range(PARTITIONS)],
        brokers=HOSTS,
        record_bytes=RECORD_BYTES,
        records=(records,) * PARTITIONS,
    )


def _measure(
    bench: Bench, driver: Console, options: Mapping[str, str], case: Mapping[str, int]
) -> None:
    def read() -> dict[str, float]:
        seconds, rows, size = driver.begin(spark_driver.seconds_to_read, options).result(
            _PATIENCE_S
        )
        return {"s": seconds, "Mrow/s": rows / seconds / 1e6, "MB/s": size / seconds / 1e6}

    read()  # Python workers start and load their libraries in the first query.
    bench.row(case, bench.repeat(read))


if __name__ == "__main__":
    main()
