"""The table of authorization: API by API, what clients with different rights are answered.

``expected.toml`` has what Quorate answers, and ``differences.toml`` where Kafka answers otherwise,
and why. `python -m tests.support.authorization_table` observes the table at a broker of Quorate's,
or with ``--kafka`` at one of Kafka's, and prints it.
"""
