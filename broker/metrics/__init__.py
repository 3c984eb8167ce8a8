"""What a broker tells of itself, with Kafka's meanings: declared once, read when asked."""
