"""The metrics of a broker, with Kafka's meanings: declared once, and read when they are
requested."""
