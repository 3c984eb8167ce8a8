"""Damage data folders, open them, and count what came of it.

python -m tests.campaign --cases 10000 --jobs 2
python -m tests.campaign --seed 7 --node broker --only 1234 --keep /tmp/found
"""

import argparse
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.campaign.broker_node import BrokerNode
from tests.campaign.folder_level import FolderCampaign, work_folder
from tests.campaign.mutants import MUTANTS, without
from tests.campaign.node import DamagedNode
from tests.campaign.outcome import Case, table
from tests.campaign.voter_node import VoterNode

NODES: dict[str, type[DamagedNode]] = {"broker": BrokerNode, "voter": VoterNode}


def main() -> int:
    """Run the campaign; 1 if it found something."""
    options = _options()
    began = time.monotonic()
    _say(f"seed {options.seed}")
    cases: list[Case] = []
    work = work_folder()
    try:
        for name in [options.node] if options.node else NODES:
            cases += _run_node(name, work / name, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _say(table(cases))
    _say(f"seed {options.seed}, {time.monotonic() - began:.0f} s")
    if options.json:
        document = {"seed": options.seed, "cases": cases}
        Path(options.json).write_bytes(msgspec.json.encode(document))
    return 1 if any(case.is_finding for case in cases) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--cases", type=int, default=1_000, help="in all, of all nodes")
    parser.add_argument("--node", choices=list(NODES), help="of one node only")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this one case")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--without", choices=list(MUTANTS), help="take a check of the product out")
    parser.add_argument("--keep", type=Path, help="put the folders of findings there")
    parser.add_argument("--json", help="write all cases to this file")
    return parser.parse_args()


def _run_node(name: str, work: Path, options: argparse.Namespace) -> list[Case]:
    work.mkdir()
    campaign = FolderCampaign(NODES[name](), work, options.seed)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    else:
        numbers = range(options.cases // (1 if options.node else len(NODES)))
    cases = []
    with without(options.without):
        for case in _in_processes(campaign, numbers, options):
            cases.append(case)
            if case.is_finding or options.only is not None:
                _say(str(case))
    return cases


def _in_processes(
    campaign: FolderCampaign, numbers: range, options: argparse.Namespace
) -> Iterator[Case]:
    """Yield the cases, which as many processes run at a time."""
    if options.jobs == 1:
        yield from campaign.run(numbers, options.keep)
        return
    pipes = [
        _worker(campaign, numbers[job :: options.jobs], options) for job in range(options.jobs)
    ]
    decoder = msgspec.json.Decoder(Case)
    for pid, reading in pipes:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                yield decoder.decode(line)
        os.waitpid(pid, 0)


def _worker(
    campaign: FolderCampaign, numbers: range, options: argparse.Namespace
) -> tuple[int, int]:
    """Start a process that writes its cases, a line each; its id and the end to read from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    code = 1
    try:
        with os.fdopen(writing, "wb") as lines:
            for case in campaign.run(numbers, options.keep):
                lines.write(msgspec.json.encode(case) + b"\n")
                lines.flush()
        code = 0
    finally:
        os._exit(code)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
