"""The server: use cases over the log, and the faces that translate them (HTTP here; gRPC and PostgreSQL join beside it).

In: requests as values. Out: documents as values, refusals as :mod:`headrace.errors`. No use case knows its face.
"""
