"""Run seeds of the cluster's simulator, replay one, or hunt with one guard taken out.

python -m tests.sim.cluster --seeds 1-2000 --jobs 2
python -m tests.sim.cluster --seeds 63 --trace
python -m tests.sim.cluster --seeds 1-300 --without fetch-epoch
python -m tests.sim.cluster --measure isr-cas maximal-isr
"""

import sys

from tests.sim.cluster.simulator import CLUSTER
from tests.sim.command_line import main

if __name__ == "__main__":
    sys.exit(main(CLUSTER, __doc__))
