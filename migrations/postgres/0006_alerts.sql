-- What an operator should look at: different bytes for one debug id. The newest thousand stay, of all servers of this database.

CREATE TABLE alerts (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id     UUID NOT NULL UNIQUE, -- which the server gave it, so that none is recorded twice
    at     TIMESTAMPTZ NOT NULL,
    alert  JSONB NOT NULL        -- as GET /api/v1/alerts gives it
);
