-- Who may write to the server's log. Of a token only the SHA-256 of its text is kept; times are RFC 3339 text in UTC.

CREATE TABLE tokens (
    token_sha256 TEXT PRIMARY KEY NOT NULL, -- 64 hex digits; the first 12 are the token's id
    name         TEXT NOT NULL,
    scope        TEXT NOT NULL,             -- log:write
    created_at   TIMESTAMP NOT NULL,
    expires_at   TIMESTAMP,                 -- NULL: never
    revoked_at   TIMESTAMP                  -- NULL: it holds
);

-- The artifact keys whose signatures a token may log.
CREATE TABLE token_keys (
    token_sha256 TEXT NOT NULL REFERENCES tokens (token_sha256) ON DELETE CASCADE,
    key_id       TEXT NOT NULL, -- base64 of the SHA-256 of the SPKI
    PRIMARY KEY (token_sha256, key_id)
) WITHOUT ROWID;
