"""The gRPC face: RFC-010's ``WalStream`` and our ``LogAppend``, beside health and reflection, in HTTP's process and loop.

In: requests as bytes, parsed here so that malformed ones are answered clearly. Out: messages as bytes; no object an entry.
"""
