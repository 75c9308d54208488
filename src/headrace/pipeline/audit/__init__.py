"""Are the tables what the feed says? The feed is folded anew from its first entry, and compared row by row.

In: a published moment of the tables, and the feed. Out: per table counts, checksums, and the keys that differ.
"""
