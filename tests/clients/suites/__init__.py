"""The test suites of Kafka's clients, run against clusters of ours.

Each suite is run from a checkout that is given; Kafka's own compiled tests Maven fetches.

    python -m tests.clients.suites kafka-java --only DeleteTopicTest    # java, javac, mvn
    python -m tests.clients.suites kafka-python PATH
    python -m tests.clients.suites aiokafka PATH
    python -m tests.clients.suites librdkafka PATH      # built, with its tests/test-runner

docs/CLIENTS.md says what came of it, and with which versions.
"""
