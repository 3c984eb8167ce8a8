"""The changes that a person makes with a mouse, each as the Kafka request of a client."""
