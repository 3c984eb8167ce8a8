"""The decisions of a controller as pure functions: they take an image and a request, and return
decisions.

Nothing here changes anything. An operation takes effect when its transaction is applied, and every
other manager sees it then, in the next image. The failure of an item of a request is a value, so
one bad topic never stops the others. Clocks, ids and randomness are arguments, so that a run can be
replayed from a seed.
"""
