"""``make demo``: real input through a whole cluster, one kill -9 on the way, nothing lost."""
