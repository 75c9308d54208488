"""Bytes <-> values: WAL entries, frames, segment starts, indexes, the mark, HTTP documents. Pure.

In: values of ``entries``, or bytes from disk and network. Out: the other of the two. Whoever holds bytes asks this room
what they mean; nothing here reads a file or a socket.
"""
