"""The Spark benchmark's look at processes."""

import subprocess
import sys

import pytest

from bench.spark_reading.processes import CpuClock, spark_pids

BUSY = "import time\nwhile time.process_time() < 0.1: pass\nprint('done', flush=True); input()"


@pytest.mark.parametrize("daemon", ["pyspark.daemon", "quorate.spark.worker_daemon"])
def test_finds_sparks_processes_below_this_one_by_their_command(daemon: str) -> None:
    worker = [sys.executable, "-c", "input()", "-m", daemon]
    before = spark_pids()  # Other tests of this process may have a Spark session.
    with subprocess.Popen(worker, stdin=subprocess.PIPE) as process:
        found = spark_pids()
        assert process.pid in found["Python workers"]
        assert process.pid not in before["Python workers"] + found["JVM"]
        process.kill()


def test_the_cpu_clock_counts_what_a_process_used_since() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        clock = CpuClock({"busy": process.pid})
        assert process.stdout
        process.stdout.readline()
        assert 0.05 < clock.elapsed()["busy CPU s"] < 5
        process.kill()


def test_the_jvm_is_no_worker_though_it_is_told_their_daemon() -> None:
    setting = "spark.python.daemon.module=quorate.spark.worker_daemon"
    jvm = [
        sys.executable,
        "-c",
        "input()",
        "--conf",
        setting,
        "org.apache.spark.deploy.SparkSubmit",
    ]
    with subprocess.Popen(jvm, stdin=subprocess.PIPE) as process:
        found = spark_pids()
        assert process.pid in found["JVM"]
        assert process.pid not in found["Python workers"]
        process.kill()
