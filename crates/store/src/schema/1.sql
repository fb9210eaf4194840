CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    started_at TEXT NOT NULL,
    command TEXT NOT NULL,
    version TEXT NOT NULL,
    machine TEXT NOT NULL,
    description TEXT NOT NULL,
    seed TEXT NOT NULL,
    outcome TEXT CHECK (outcome IN ('completed', 'interrupted', 'failed')),
    reason TEXT CHECK ((reason IS NOT NULL) = (outcome IS 'failed'))
) STRICT;

CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id),
    primitive TEXT NOT NULL,
    unit TEXT NOT NULL,
    UNIQUE (run, primitive)
) STRICT;

CREATE TABLE sample (
    id INTEGER PRIMARY KEY,
    series INTEGER NOT NULL REFERENCES series (id),
    body TEXT NOT NULL
) STRICT;
CREATE INDEX sample_by_series ON sample (series);

CREATE TABLE rejected (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id),
    primitive TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX rejected_by_run ON rejected (run);

CREATE TABLE unavailable (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id),
    primitive TEXT NOT NULL,
    reason TEXT NOT NULL,
    UNIQUE (run, primitive)
) STRICT;

CREATE TABLE round (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id),
    operation TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX round_by_run ON round (run);
