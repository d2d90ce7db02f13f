-- What servers that share an object store are about to write there or remove. A row is there before the object store is asked, and goes with the
-- statement that tells of it in `changes`. One that stays is of a server that was killed between the two, or that had no answer: the others look what
-- became of it.

CREATE TABLE intents (
    id   UUID PRIMARY KEY,
    keys TEXT[] NOT NULL, -- of facts, as in `changes`
    at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX intents_by_age ON intents (at);
