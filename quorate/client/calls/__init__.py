"""The admin calls, by area: generator functions, one per method of the admin clients."""
