"""``python -m tests.tables --kills 100 --seed 1 --mode upsert``: kills, and what is left of it."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from quorate.tables.write_mode import WriteMode
from quorate.testing import running_cluster
from tests.tables.campaign import Campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--mode", type=WriteMode, choices=list(WriteMode), default=WriteMode.APPEND)
    flags = parser.parse_args()
    begin = time.monotonic()

    def say(message: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - begin:6.1f} s] {message}\n")
        sys.stdout.flush()

    say(f"seed {flags.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="quorate-tables-") as folder,
        running_cluster(3, 3, progress=say, log_cleaner_backoff_ms=200) as cluster,
    ):
        campaign = Campaign(cluster, Path(folder), flags.seed, say, flags.mode)
        campaign.run(flags.kills)
        try:
            rows = campaign.check()
        except AssertionError as error:
            say(f"FAILED with seed {flags.seed}: {error}")
            return 1
    say(
        f"{flags.kills} kills, {rows['iceberg']} rows in Iceberg, {rows['delta']} rows in Delta, "
        "none lost, none too many"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
