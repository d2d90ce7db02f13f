-- The four tables that every installation has. A UUID is a 16-byte BLOB; an unsigned 64-bit value is stored as the
-- signed one with the same bits (two's complement); times are RFC 3339 text in UTC; a digest is `sha256:` and hex.

CREATE TABLE symbol_bundles (
    sha256         TEXT PRIMARY KEY NOT NULL, -- of the image index
    os             TEXT NOT NULL,             -- platforms of its modules, joined by ','
    bundle_blob    BLOB NOT NULL,             -- the image index's bytes
    index_json     TEXT NOT NULL,             -- symbol_index.json
    signer         TEXT,                      -- key id of its seal; NULL until one arrives
    rekor_tile_ref TEXT,                      -- <origin>/tile/entries/<N>#<index> of the seal's log entry
    name           TEXT NOT NULL,
    version        TEXT NOT NULL,
    seal_digest    TEXT,                      -- the seal's blob
    dsse_ref       TEXT                       -- dsse: and the sha256 of the seal's envelope
);

CREATE INDEX symbol_bundles_by_name ON symbol_bundles (name, version);

CREATE TABLE traces (
    trace_id             BLOB PRIMARY KEY NOT NULL CHECK (length(trace_id) = 16),
    platform             TEXT NOT NULL,
    captured_at          TIMESTAMP,
    build_id             TEXT,
    symbol_bundle_sha256 TEXT, -- not a foreign key: a trace may arrive before its bundle
    dsse_ref             TEXT,
    blob_sha256          TEXT NOT NULL, -- the events, as they were sent
    arch                 TEXT,
    method               TEXT,
    pid                  INTEGER
);

CREATE TABLE frames (
    trace_id        BLOB NOT NULL REFERENCES traces (trace_id) ON DELETE CASCADE,
    frame_index     INTEGER NOT NULL, -- trace-wide ordinal
    ip              BIGINT NOT NULL,
    module_path     TEXT,
    module_build_id TEXT,
    resolved_symbol TEXT,             -- the function's name
    symbol_offset   BIGINT,
    resolver        TEXT NOT NULL,
    linkage_name    TEXT,
    thread          INTEGER NOT NULL,
    sample          INTEGER NOT NULL,
    depth           INTEGER NOT NULL,
    inline_depth    INTEGER NOT NULL,
    inlined         BOOLEAN NOT NULL,
    file            TEXT,
    line            INTEGER,
    "column"        INTEGER,
    unwind          TEXT NOT NULL,
    quality         TEXT NOT NULL,
    proof           TEXT NOT NULL,
    reason          TEXT,
    PRIMARY KEY (trace_id, frame_index)
) WITHOUT ROWID;

CREATE TABLE replays (
    replay_id            BLOB PRIMARY KEY NOT NULL CHECK (length(replay_id) = 16),
    trace_id             BLOB NOT NULL REFERENCES traces (trace_id) ON DELETE CASCADE,
    seed                 BIGINT NOT NULL,
    started_at           TIMESTAMP,
    finished_at          TIMESTAMP,
    replay_success_ratio FLOAT NOT NULL,
    verify_time_ms       INT NOT NULL,
    verifier_version     TEXT,
    notes                TEXT, -- JSON
    symbol_coverage_pct  FLOAT NOT NULL,
    proved_coverage_pct  FLOAT
);

CREATE INDEX replays_by_trace ON replays (trace_id);
