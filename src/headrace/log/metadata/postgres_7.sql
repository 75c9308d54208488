-- The table that format 7 added: see docs/formats/metadata.md.

CREATE TABLE headrace_log.slot (
    name          text COLLATE "C" NOT NULL PRIMARY KEY,
    slot_id       text NOT NULL,         -- a UUID, another one whenever it is made anew
    subject       text COLLATE "C" NOT NULL,   -- of the token that made it
    plugin        text COLLATE "C" NOT NULL,   -- its output format
    options       text NOT NULL,         -- what it was made with, as JSON
    position      bigint NOT NULL,       -- confirmed up to there
    holder        text NOT NULL,         -- the server at which it is in use, empty: none
    held_until_ms bigint NOT NULL,       -- that is void from then on
    crc           bigint NOT NULL
);
