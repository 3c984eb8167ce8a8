"""The quorum, whole and single-threaded, over a simulated network, disk and clock ."""
