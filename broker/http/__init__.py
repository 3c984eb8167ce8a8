"""HTTP listeners of a broker, in its own event loop: who a client is, and how large and how slow a
request may be. What the routes of a listener do is the business of rooms above.
"""
