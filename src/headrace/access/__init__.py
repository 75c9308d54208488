"""Who may do what: bearer tokens, what they grant, tickets, TLS, and the guards at the door. Server and agent share it.

In: tokens, key sets, certificates. Out: a :class:`~headrace.access.grants.Grant`, or a refusal.
"""
