-- The four tables that every installation has. An unsigned 64-bit value is stored as the signed one with the same bits
-- (two's complement); a digest is `sha256:` and hex. JSONB keeps no bytes: no digest is computed from it.

CREATE TABLE symbol_bundles (
    sha256         TEXT PRIMARY KEY, -- of the image index
    os             TEXT NOT NULL,    -- platforms of its modules, joined by ','
    bundle_blob    BYTEA NOT NULL,   -- the image index's bytes
    index_json     JSONB NOT NULL,   -- symbol_index.json
    signer         TEXT,             -- key id of its seal; NULL until one arrives
    rekor_tile_ref TEXT,             -- <origin>/tile/entries/<N>#<index> of the seal's log entry
    name           TEXT NOT NULL,
    version        TEXT NOT NULL,
    seal_digest    TEXT,             -- the seal's blob
    dsse_ref       TEXT              -- dsse: and the sha256 of the seal's envelope
);

CREATE INDEX symbol_bundles_by_name ON symbol_bundles (name, version);

CREATE TABLE traces (
    trace_id             UUID PRIMARY KEY,
    platform             TEXT NOT NULL,
    captured_at          TIMESTAMPTZ, -- NULL too where a trace says what is no time
    build_id             TEXT,
    symbol_bundle_sha256 TEXT,        -- not a foreign key: a trace may arrive before its bundle
    dsse_ref             TEXT,
    blob_sha256          TEXT NOT NULL, -- the events, as they were sent
    arch                 TEXT,
    method               TEXT,
    pid                  BIGINT
);

CREATE TABLE frames (
    trace_id        UUID NOT NULL REFERENCES traces (trace_id) ON DELETE CASCADE,
    frame_index     INT NOT NULL, -- trace-wide ordinal
    ip              BIGINT NOT NULL,
    module_path     TEXT,
    module_build_id TEXT,
    resolved_symbol TEXT,         -- the function's name
    symbol_offset   BIGINT,
    resolver        TEXT NOT NULL,
    linkage_name    TEXT,
    thread          BIGINT NOT NULL,
    sample          BIGINT NOT NULL,
    depth           BIGINT NOT NULL,
    inline_depth    BIGINT NOT NULL,
    inlined         BOOLEAN NOT NULL,
    file            TEXT,
    line            BIGINT,
    "column"        BIGINT,
    unwind          TEXT NOT NULL,
    quality         TEXT NOT NULL,
    proof           TEXT NOT NULL,
    reason          TEXT,
    PRIMARY KEY (trace_id, frame_index)
);

CREATE TABLE replays (
    replay_id            UUID PRIMARY KEY,
    trace_id             UUID NOT NULL REFERENCES traces (trace_id) ON DELETE CASCADE,
    seed                 BIGINT NOT NULL,
    started_at           TIMESTAMPTZ,
    finished_at          TIMESTAMPTZ,
    replay_success_ratio DOUBLE PRECISION NOT NULL,
    verify_time_ms       INT NOT NULL, -- at most what an INT holds, which is 24 days
    verifier_version     TEXT,
    notes                JSONB,
    symbol_coverage_pct  DOUBLE PRECISION NOT NULL,
    proved_coverage_pct  DOUBLE PRECISION
);

CREATE INDEX replays_by_trace ON replays (trace_id);
