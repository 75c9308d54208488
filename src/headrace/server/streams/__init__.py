"""The stream over all feeds: who subscribes and where they are, what of the journal a stream carries, and at what pace."""
