"""The test suites of Kafka's clients, run against clusters of ours.

    python -m tests.clients.suites kafka-java           # java, javac, mvn
    python -m tests.clients.suites franz-go             # go
    python -m tests.clients.suites kafka-python PATH    # a checkout
    python -m tests.clients.suites aiokafka PATH
    python -m tests.clients.suites confluent-kafka-python PATH
    python -m tests.clients.suites librdkafka PATH      # built, with its tests/test-runner

``expected/`` has what passes in each, and why the rest does not. docs/CLIENTS.md says what came of
it, and with which versions.
"""
