-- Upload sessions of servers that share an object store which have ended: every one of them answers 404 to what comes after. For a day, as long as a
-- session lives without a request.

CREATE TABLE ended_uploads (
    session UUID PRIMARY KEY,
    at      TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX ended_uploads_by_age ON ended_uploads (at);
