"""Kill brokers while workers of a share group take records: ``python -m tests.queues --kills 100``.

It prints what was redelivered and what must not be, and ends with 1 if there is any of that.
"""

import argparse
import random
import sys

from quorate.testing import running_cluster
from tests.queues.campaign import CONFIG, create, work_through_kills
from tests.support.whole_cluster import wait_until_whole


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.queues", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--records", type=int, default=0, help="by default 1500 for each kill")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args(words)
    tell(f"seed {given.seed}")
    with running_cluster(brokers=3, config=CONFIG) as cluster:
        create(cluster, "jobs", 3)
        wait_until_whole(cluster)
        ledger = work_through_kills(
            cluster,
            topic="jobs",
            records=given.records or 1500 * (given.kills + 1),
            workers=given.workers,
            kills=given.kills,
            choice=random.Random(given.seed),
        )
    faults = ledger.check()
    tell(f"{given.kills} kills, {ledger.redelivered} redelivered, {len(faults)} faults")
    for fault in faults:
        tell(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
