"""Applications of Kafka's ecosystem over kills of brokers and of their own workers.

python -m tests.clients.applications streams --kills 40
python -m tests.clients.applications connect --kills 40 --seed 7
"""

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from quorate.testing import running_cluster
from tests.clients.applications import connect, streams
from tests.clients.suites.java_build import NotBuilt
from tests.support.timed_lines import timed_lines

APPLICATIONS = {"connect": connect.run, "streams": streams.run}


def main() -> int:
    """Run the application; 1 if something was not there exactly once, 2 without Java or Maven."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.clients.applications",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("application", choices=sorted(APPLICATIONS))
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--keep", action="store_true", help="leave the folder of a failure")
    options = parser.parse_args()
    say = timed_lines()
    say(f"seed {options.seed}")
    folder = Path(tempfile.mkdtemp(prefix="quorate-applications-"))
    failed = True
    try:
        with running_cluster(brokers=3, voters=3) as cluster:
            run = APPLICATIONS[options.application]
            say(run(cluster, folder, options.kills, options.seed, say))
        failed = False
    except NotBuilt as missing:
        say(str(missing))
        return 2
    except AssertionError as error:
        say(f"FAILED: {error}")
    finally:
        if failed and options.keep:
            say(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
