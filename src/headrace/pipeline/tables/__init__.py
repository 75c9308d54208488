"""Delta tables of a feed: one per source table, merged batch by batch, published together as one moment.

In: data frames of the source. Out: a folder of Delta tables, and ``_headrace/`` beside them, which says what is published.
"""
