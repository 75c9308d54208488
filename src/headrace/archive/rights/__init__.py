"""Who may do what to an archive: one owner writes, and nothing that somebody reads is pruned. No clock decides."""
