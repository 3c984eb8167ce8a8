"""What a controller decides, as pure functions: image and request in, operations and answers out.

Nothing here changes anything. An operation becomes true when its transaction is applied, and every
other manager sees it then, in the next image. Each item of a request that fails is a value: one bad
topic never stops its siblings. Clocks, ids and randomness come in as arguments, so that a run can
be replayed from a seed.
"""
