"""The metadata log as rows: what changed, who wrote it, and when; format ``quorate-metadata``."""
