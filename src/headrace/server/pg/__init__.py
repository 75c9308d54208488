"""The log over PostgreSQL's replication protocol: the third face, beside ``http`` and ``grpc``.

What comes in is what ``pg_recvlogical`` and its kin say; what goes out is a walk along the journal, as XLogData.
"""
