-- Who may do what. Of a token only the SHA-256 of its text is kept.

CREATE TABLE tokens (
    token_sha256 TEXT PRIMARY KEY,     -- 64 hex digits; the first 12 are the token's id
    number       BIGINT GENERATED ALWAYS AS IDENTITY,
    name         TEXT NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL,
    expires_at   TIMESTAMPTZ,          -- NULL: never
    revoked_at   TIMESTAMPTZ           -- NULL: it holds
);

-- The artifact keys whose signatures a token may log.
CREATE TABLE token_keys (
    token_sha256 TEXT NOT NULL REFERENCES tokens (token_sha256) ON DELETE CASCADE,
    key_id       TEXT NOT NULL, -- base64 of the SHA-256 of the SPKI
    PRIMARY KEY (token_sha256, key_id)
);

-- What each token may do, in the words of `symseal token create`: read:PREFIX, write:PREFIX, traces:read, traces:write,
-- log:write, audit:read.
CREATE TABLE token_grants (
    token_sha256 TEXT NOT NULL REFERENCES tokens (token_sha256) ON DELETE CASCADE,
    grant_text   TEXT NOT NULL,
    PRIMARY KEY (token_sha256, grant_text)
);

-- Keys that the servers of this database share. They seal what holds for minutes, so a new one costs nobody anything.
CREATE TABLE secrets (
    name   TEXT PRIMARY KEY,
    secret BYTEA NOT NULL
);

-- Every request that changed something, or was to. Never rewritten.
CREATE TABLE audit_log (
    number     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         TIMESTAMPTZ NOT NULL,
    request_id TEXT NOT NULL,
    token_id   TEXT,             -- NULL: no token was shown
    address    TEXT,
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    digest     TEXT,
    status     INT NOT NULL
);
