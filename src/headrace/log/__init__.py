"""The durable ordered log: pure append rules, a small store contract, the file store, reading and waiting.

In: appends and registrations. Out: places (sequence id, LSN), stored frames, and a wake-up when there is more.
"""
