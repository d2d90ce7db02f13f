-- What an operator should look at: different bytes for one debug id. The newest thousand stay.

CREATE TABLE alerts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id     BLOB NOT NULL UNIQUE, -- the UUID that the server gave it, so that none is recorded twice
    at     TIMESTAMP NOT NULL,
    alert  TEXT NOT NULL         -- JSON, as GET /api/v1/alerts gives it
);
