"""Share groups as queues: workers, kills of leaders, and a checker of its own (KIP-932)."""
