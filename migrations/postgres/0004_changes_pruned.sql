-- Up to which number rows of `changes` were deleted. A server that has not read so far reads the object store whole.

CREATE TABLE changes_pruned (
    is_only BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (is_only),
    through BIGINT NOT NULL
);

INSERT INTO changes_pruned (through) VALUES (0);
