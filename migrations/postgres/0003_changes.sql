-- By what servers that share an object store follow each other: which fact of the store was written or removed. The store is
-- the truth; a server that starts reads it whole, and rows that every server has read may be deleted.

CREATE TABLE changes (
    number     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         TIMESTAMPTZ NOT NULL DEFAULT now(),
    key        TEXT NOT NULL,    -- repositories/NAME/_tags/TAG and its kin
    is_removed BOOLEAN NOT NULL
);
