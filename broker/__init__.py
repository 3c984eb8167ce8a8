"""One broker: Kafka clients in front, partition logs in LMDB behind, peers and the quorum by gRPC."""
