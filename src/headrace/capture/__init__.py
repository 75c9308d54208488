"""A database's binlog as Simple messages in a feed: each committed row once, in order, with the schema it had.

In: MariaDB's binlog and its tables. Out: appends that carry the source position, so that the log is the checkpoint.
"""
