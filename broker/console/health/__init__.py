"""The health of partitions by topic, kept up to date as the metadata changes."""
