"""The kit that tests of Headrace and of its users need: disks that fail, and a clock that is set by hand.

In: what shall go wrong, and when. Out: the real thing with that fault. Nothing of the program imports this room.
"""
