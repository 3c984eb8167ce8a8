"""The console as a Kafka client: requests of people, carried out on this broker or on another."""
