"""Faults of every kind over brokers, voters, links and disks, under load.

python -m tests.faults --events 100
python -m tests.faults --seed 7 --events 30
python -m tests.faults --events 100 --kinds kill,SIGSTOP
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.faults.run import run
from tests.support.timed_lines import timed_lines


def main() -> int:
    """Run the events; 1 if something did not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument(
        "--kinds", default="", help="only kinds of events with one of these words in their names"
    )
    parser.add_argument("--keep", action="store_true", help="leave the folder of a failure")
    options = parser.parse_args()
    say = timed_lines()
    say(f"seed {options.seed}")
    folder = Path(tempfile.mkdtemp(prefix="quorate-faults-"))
    failed = True
    try:
        words = [word for word in options.kinds.split(",") if word]
        run(folder, options.seed, options.events, say, words)
        failed = False
    except AssertionError as error:
        say(str(error))
    finally:
        if failed and options.keep:
            say(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    say(f"seed {options.seed}: {'FAILED' if failed else 'all held'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
