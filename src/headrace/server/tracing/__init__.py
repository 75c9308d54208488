"""What became of an entry: consumers' progress is written down as it goes, and told afterwards."""
