"""The worst requests that Kafka's schemas allow, and what they do to a broker and its clients."""
