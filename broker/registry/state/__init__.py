"""What the registry knows: a fold over the records of the topic ``_schemas``. All of it is pure."""
