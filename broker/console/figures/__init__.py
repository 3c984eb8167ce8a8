"""The figures of the last hour that a broker keeps for the charts of the console."""
