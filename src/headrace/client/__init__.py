"""The one client of the server: agent, listener, capture, pipeline and command line all speak through it.

In: values. Out: the server's documents as values, and its problem documents as :mod:`headrace.errors`.
"""
