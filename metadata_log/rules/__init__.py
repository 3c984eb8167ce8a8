"""What each record does to the draft, and when it is refused: one small function per record."""
