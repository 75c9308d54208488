"""What every process needs: clock, backoff, settings, logs, shutdown, and the one module that touches files.

In: the machine. Out: small frozen values and functions that the other rooms are given.
"""
