"""Retention at work: the loop that drops segments, what it says of itself, and how far behind consumers are."""
