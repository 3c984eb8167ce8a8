"""The admin calls by area: generator functions, one for each method of the admin clients."""
