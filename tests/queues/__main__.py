"""Kill and pause brokers while workers of a share group take records.

``python -m tests.queues --kills 100`` prints its progress, the faults that it found, and the
figures in the last line. It ends with 1 if there are faults.
"""

import argparse
import random
import sys
from typing import Final

from quorate.testing import running_cluster
from tests.queues.campaign import CONFIG, Campaign, create, figures
from tests.support.whole_cluster import wait_until_whole

_SHOWN: Final = 50


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.queues", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="kills and pauses together")
    parser.add_argument("--raw-workers", type=int, default=6, help="workers that note times")
    parser.add_argument("--workers", type=int, default=2, help="workers with a client library")
    parser.add_argument("--records", type=int, default=0, help="by default 1500 for each kill")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args(words)
    tell(f"seed {given.seed}")
    with running_cluster(brokers=3, config=CONFIG) as cluster:
        create(cluster, "jobs", 3)
        wait_until_whole(cluster)
        campaign = Campaign(cluster, "jobs", random.Random(given.seed), tell)
        ledger = campaign.run(
            records=given.records or 1500 * (given.kills + 1),
            raw=given.raw_workers,
            workers=given.workers,
            kills=given.kills,
        )
    faults = ledger.check()
    for fault in faults[:_SHOWN]:
        tell(fault)
    tell(f"{dict(campaign.strikes)}, {figures(ledger)}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
