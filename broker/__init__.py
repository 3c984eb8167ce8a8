"""One broker: Kafka clients in front, logs in LMDB behind, peers and the quorum by gRPC."""
