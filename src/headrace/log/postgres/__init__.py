"""The PostgreSQL store: frames as rows, the journal's end a row that every group of appends locks until it has committed."""
