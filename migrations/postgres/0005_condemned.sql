-- What servers that share an object store are about to collect. A server that comes to rely on something strikes it out first
-- (`DELETE`, where nobody has taken it); what is taken is on its way out of the store, and nobody relies on it before its row is gone.

CREATE TABLE condemned (
    digest     TEXT NOT NULL,
    repository TEXT NOT NULL,   -- that ceases to offer it; '': its bytes go
    bytes      BIGINT NOT NULL, -- how many, where these go
    at         TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), -- since when it is condemned, or, once it is taken, when the one who took it last said so
    taken_by   UUID,
    PRIMARY KEY (digest, repository)
);

CREATE INDEX condemned_by_age ON condemned (at);
