"""Output plugins: pieces of stored frames -> the payloads of XLogData messages. Pure: no socket, no clock, no store."""
