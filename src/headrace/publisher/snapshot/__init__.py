"""The publisher's snapshot: a feed's state at one sequence id, read once into a spool, served from there to all who ask.

In: a source's state (``publisher.state``). Out: HTTP. ``spool`` keeps files, ``maker`` decides when one is made, ``face``
serves them, ``guard`` says to whom. Nothing here holds a transaction open for a listener.
"""
