"""Are the tables what the feed says, and is that what the source holds? Compared row by row, at the moment of each.

In: a published moment of the tables, the feed (which is folded anew), and if asked for the source database at a moment of
its own. Out: per table counts, checksums, and the keys that differ.
"""
