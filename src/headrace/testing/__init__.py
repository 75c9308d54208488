"""The kit that tests of Headrace and of its users need: disks that fail, a clock set by hand, a judge of histories.

In: what shall go wrong, and when. Out: the real thing with that fault. Nothing of the program imports this room.
"""
