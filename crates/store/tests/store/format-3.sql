PRAGMA application_id = 1634951545;
PRAGMA user_version = 3;
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
INSERT INTO run VALUES (1, '2026-11-21T21:44:00Z', '["assay","bench","--seed","7","tcp.*"]', '0.1.0', 'build-7', '{"facts":[["cpu","a \"fast\" one, 3 GHz ±"]],"uncontrolled":["the frequency was not fixed"]}', '18446744073709551615', 'completed', NULL);
INSERT INTO run VALUES (2, '2026-11-21T21:44:00Z', '["assay","bench","--seed","7","tcp.*"]', '0.1.0', 'build-7', '{"facts":[["cpu","a \"fast\" one, 3 GHz ±"]],"uncontrolled":["the frequency was not fixed"]}', '18446744073709551615', 'interrupted', NULL);
INSERT INTO run VALUES (3, '2026-11-21T21:44:00Z', '["assay","bench","--seed","7","tcp.*"]', '0.1.0', 'build-7', '{"facts":[["cpu","a \"fast\" one, 3 GHz ±"]],"uncontrolled":["the frequency was not fixed"]}', '18446744073709551615', 'failed', 'no space');
INSERT INTO run VALUES (4, '2026-11-21T21:44:00Z', '["assay","bench","--seed","7","tcp.*"]', '0.1.0', 'build-7', '{"facts":[["cpu","a \"fast\" one, 3 GHz ±"]],"uncontrolled":["the frequency was not fixed"]}', '18446744073709551615', NULL, NULL);
INSERT INTO series VALUES (1, 1, 'tcp.send{size=4KiB,buffer=reused}', 'ns/B');
INSERT INTO sample VALUES (1, 1, '{"seed":1,"observations":[[1,1.0],[2,1.1],[3,1.2],[4,1.3],[5,1.4],[6,1.5],[7,1.6],[8,1.7000000000000002],[9,1.8],[10,1.9],[11,2.0],[12,2.1],[13,2.2],[14,2.3],[15,2.4000000000000004],[16,2.5],[17,2.6],[18,2.7],[19,2.8],[20,2.9000000000000004]],"baseline":[[1,1.0],[2,1.1],[3,1.2]],"evidence":{"core_width":[3.97,4.01],"cycle_ns":[0.342],"interrupts":[0.007],"involuntary_switches":[1.0],"major_faults":[0.0],"mprotect_ns":[4562.5],"not_run":[0.0,0.25,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.25,0.0],"runnable_elsewhere":[0.5,1.5],"stolen":[0.0],"weather":[-1e-300,21.5]},"counted":[{"event":"page faults","batches":[[1,2.0],[2,4.5]]},{"event":"cycles","reason":"there is no counter"}]}');
INSERT INTO sample VALUES (2, 1, '{"seed":2,"observations":[[1,2.0],[2,2.1],[3,2.2],[4,2.3],[5,2.4],[6,2.5],[7,2.6],[8,2.7],[9,2.8],[10,2.9],[11,3.0],[12,3.1],[13,3.2],[14,3.3],[15,3.4000000000000004],[16,3.5],[17,3.6],[18,3.7],[19,3.8],[20,3.9000000000000004]],"baseline":[[1,2.0],[2,2.1],[3,2.2]],"refused":1,"evidence":{"core_width":[3.97,4.01],"cycle_ns":[0.342],"interrupts":[0.007],"involuntary_switches":[2.0],"major_faults":[0.0],"mprotect_ns":[4562.5],"not_run":[0.0,0.25,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.25,0.0],"runnable_elsewhere":[0.5,1.5],"stolen":[0.0],"weather":[-1e-300,21.5]},"counted":[{"event":"page faults","batches":[[1,2.0],[2,4.5]]},{"event":"cycles","reason":"there is no counter"}]}');
INSERT INTO rejected VALUES (1, 1, 'tcp.send{size=4KiB,buffer=reused}', 'its process was killed');
INSERT INTO unavailable VALUES (1, 1, 'file.cold_read', 'needs root');
INSERT INTO round VALUES (1, 1, 'get', '{"units":10000,"elapsed_ns":1234567890,"cpu":{"total_ns":800000000,"queued_ns":9000000,"user_ticks":30,"system_ticks":50},"usable_cpus":2,"client":{"latency":{"p50_ns":101,"p90_ns":102,"p99_ns":103,"p999_ns":null,"max_ns":105},"received_bytes":6000000,"connections":64,"cpu_ns":700000000}}');
