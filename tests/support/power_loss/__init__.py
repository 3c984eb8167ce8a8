"""Power losses, replayed: what a log store wrote, and every disk that could be left of it.

``recorder.c`` writes down what a process does to a folder; ``events`` reads that, ``disk`` replays
it and builds crash images, ``load`` is the process, ``expectation`` knows what it was promised, and
``explore`` opens images and compares.
"""
