"""Kafka Streams and Kafka Connect over kills of brokers and of their own workers."""
