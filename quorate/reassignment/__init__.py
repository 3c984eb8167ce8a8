"""Reassignment plans: read, propose, start and watch them, in the formats of Kafka's tool."""
