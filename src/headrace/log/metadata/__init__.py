"""What the journal does not hold: bookmarks of listeners and subscribers, and alarms. One contract, one file a database."""
