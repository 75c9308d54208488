"""Planted faults: patches of the product, each of which some test of ``make test`` must find. See ``run.py``."""
