"""Damage one node of a running cluster between a kill -9 of all and the next start.

python -m tests.campaign.cluster --cases 300
python -m tests.campaign.cluster --seed 7 --kind broker --only 12
"""

import argparse
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from quorate.testing import running_cluster
from tests.campaign.cluster.cluster_level import BROKER, CONFIG, VOTER, ClusterCampaign
from tests.campaign.cluster.replica_differences import Compare, comparing_process
from tests.campaign.damage import KINDS
from tests.campaign.folder_level import work_folder
from tests.campaign.outcome import Case, table


def main() -> int:
    """Run the campaign; 1 if it found something."""
    options = _options()
    began = time.monotonic()
    _say(f"seed {options.seed}")
    first = 0 if options.only is None else options.only
    numbers = list(range(first, first + (options.cases if options.only is None else 1)))
    cases: list[Case] = []
    with comparing_process() as compare:
        while len(cases) < len(numbers):
            for case in _on_one_cluster(compare, numbers[len(cases) :], options):
                cases.append(case)
                if case.is_finding or options.verbose or options.only is not None:
                    _say(f"{time.monotonic() - began:.0f} s: {case}")
    _say(table(cases))
    _say(f"seed {options.seed}, {time.monotonic() - began:.0f} s")
    if options.json:
        document = {"seed": options.seed, "cases": cases}
        Path(options.json).write_bytes(msgspec.json.encode(document))
    return 1 if any(case.is_finding for case in cases) else 0


def _on_one_cluster(
    compare: Compare, numbers: list[int], options: argparse.Namespace
) -> Iterator[Case]:
    """Run cases until one of them is a finding: the next ones get a new cluster."""
    kinds = [options.kind] if options.kind else [BROKER, BROKER, VOTER]
    work = work_folder()
    folder = work / "cluster"
    try:
        with running_cluster(brokers=3, voters=3, folder=folder, config=CONFIG) as cluster:
            damages = [options.damage] if options.damage else KINDS
            campaign = ClusterCampaign(compare, cluster, options.seed, work, damages)
            for case in campaign.run(numbers, kinds):
                if case.is_finding and options.keep is not None:
                    kept = options.keep / f"cluster-{case.number}"
                    shutil.copytree(folder, kept)
                    (kept / "finding.txt").write_text("\n".join([case.what, *case.verdict.notes]))
                yield case
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--kind", choices=[BROKER, VOTER], help="damage nodes of this kind only")
    parser.add_argument("--damage", choices=KINDS, help="damage of this kind only")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this one case")
    parser.add_argument("--keep", type=Path, help="put the clusters of findings there")
    parser.add_argument("--verbose", action="store_true", help="tell every case")
    parser.add_argument("--json", help="write all cases to this file")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
