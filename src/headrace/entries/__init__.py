"""What an entry is: LSN, hybrid clock, feed id, entry, bookmark. Pure values; no I/O, no clock, no randomness.

In: numbers and bytes. Out: checked, ordered, comparable values that every other room speaks in.
"""
