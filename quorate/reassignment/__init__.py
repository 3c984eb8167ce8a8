"""Plans for moving replicas: read, made, carried out and watched, in Kafka's formats."""
