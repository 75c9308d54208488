"""The tables' schemas that stand in the feeds: found in frames, and kept for longer than the frames are."""
