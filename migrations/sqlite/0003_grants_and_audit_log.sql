-- What each token may do, in the words of `symseal token create`: read:PREFIX, write:PREFIX, traces:read, traces:write,
-- log:write, audit:read.

CREATE TABLE token_grants (
    token_sha256 TEXT NOT NULL REFERENCES tokens (token_sha256) ON DELETE CASCADE,
    grant_text   TEXT NOT NULL,
    PRIMARY KEY (token_sha256, grant_text)
) WITHOUT ROWID;

INSERT INTO token_grants (token_sha256, grant_text) SELECT token_sha256, scope FROM tokens;

ALTER TABLE tokens DROP COLUMN scope;

-- Keys that the servers of this database share. They seal what holds for minutes, so a new one costs nobody anything.
CREATE TABLE secrets (
    name   TEXT PRIMARY KEY NOT NULL,
    secret BLOB NOT NULL
) WITHOUT ROWID;

-- Every request that changed something, or was to. Never rewritten; times are RFC 3339 text in UTC.
CREATE TABLE audit_log (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    at         TIMESTAMP NOT NULL,
    request_id TEXT NOT NULL,
    token_id   TEXT,             -- NULL: no token was shown
    address    TEXT,
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    digest     TEXT,
    status     INTEGER NOT NULL
);
