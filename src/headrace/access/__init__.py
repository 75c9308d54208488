"""Who may do what: bearer tokens, grants, tickets, TLS, connections, and the guards at the door. Server and agent share it.

In: tokens, key sets, certificates. Out: a :class:`~headrace.access.grants.Grant`, or a refusal.
"""
