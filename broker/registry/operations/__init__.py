"""What each request to the registry does: pure functions of the state, which decide what to answer
and what to write. What takes long to compute is returned, to be computed on a thread.
"""
