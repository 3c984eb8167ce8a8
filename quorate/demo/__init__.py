"""``make demo``: it sends real input through a whole cluster, kills a broker, and loses nothing."""
