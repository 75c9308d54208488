"""The command line: one file (or folder) a command, listed in ``app.py``.

In: arguments. Out: an exit code, documents on stdout, logs on stderr. Nothing imports this room.
"""
