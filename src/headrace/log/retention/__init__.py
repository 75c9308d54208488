"""Retention: which journal segments go, who holds which, how long a consumer that is behind has left (design §4, rule 6).

``plan`` and ``loss`` are pure; ``consumers`` asks the store and the metadata database where everyone is.
"""
