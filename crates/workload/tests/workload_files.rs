//! Workload files: all shipped ones are valid, and every kind of mistake is an error with its line.

use std::fs;
use std::path::Path;

use assay_workload::{
    Client, Content, ExpectedContent, ExpectedReply, ExpectedResult, Placement, Program, ReadySign, Request,
    Reuse, Workload,
};
use expect_test::{Expect, expect};

const GOOD: &str = r#"name = "tiny"
about = "a tiny server"
packages = ["tiny"]
server_cpus = "split"
client_cpus = [1, 3]

[server]
command = "tiny --root '{dir}/a b' --port {port}"
port = 8080
ready = { path = "/", timeout_s = 1.5 }
stop = { signal = "QUIT", grace_s = 2 }
environment = { TINY = "1" }
concurrency = 2

[[file]]
path = "www/a.html"
content = "hello"

[[operation]]
name = "page"
client = "http"
path = "/a.html"
connections = 4
requests = 100
keep_alive = false
expect = { status = 200, file = "www/a.html" }
"#;

#[test]
fn every_shipped_workload_is_valid_and_has_the_name_of_its_file() {
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
    let setup = fs::read_to_string(setup).unwrap();
    let mut count = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads")).unwrap() {
        let path = entry.unwrap().path();
        let workload = Workload::read(&path).unwrap();
        assert_eq!(path.file_stem().unwrap().to_str(), Some(workload.name.as_str()));
        assert!(!workload.about.is_empty() && !workload.packages.is_empty(), "{}", path.display());
        assert!(!workload.operations().is_empty(), "{}", path.display());
        for package in &workload.packages {
            assert!(
                setup.split([' ', '"', '\n']).any(|word| word == package),
                "scripts/setup lacks {package}"
            );
        }
        count += 1;
    }
    assert!(count >= 5);
}

#[test]
fn a_file_is_read_completely() {
    let workload = Workload::parse(GOOD, "tiny.toml").unwrap();
    let Program::Server(server) = &workload.program else { panic!("{workload:?}") };
    assert_eq!(server.command, ["tiny", "--root", "{dir}/a b", "--port", "{port}"]);
    assert_eq!((server.port, server.concurrency.unwrap().get()), (8080, 2));
    assert_eq!((&server.server_cpus, &server.client_cpus), (&Placement::Split, &Placement::Cpus(vec![1, 3])));
    assert_eq!(server.ready.timeout.as_millis(), 1500);
    assert_eq!(server.environment, [("TINY".to_owned(), "1".to_owned())]);
    assert_eq!(server.files[0].content, Content::Text("hello".into()));
    let Client::ClosedLoop(client) = &workload.operation("page").unwrap().client else {
        panic!("{workload:?}")
    };
    assert_eq!((client.requests.get(), client.connections.get()), (100, 4));
    let Request::Http { reuse, expect, .. } = &client.request else { panic!("{client:?}") };
    assert_eq!(*reuse, Reuse::NewConnection);
    assert_eq!(expect.content, ExpectedContent::File("www/a.html".into()));
}

#[test]
fn a_command_is_a_line_or_a_list_of_words() {
    for run in [r#""make -j2 'a b'""#, r#"["make", "-j2", "a b"]"#] {
        let text = format!("name = \"m\"\nabout = \"m\"\npackages = []\n[command]\nrun = {run}\n");
        let Program::Command(command) = Workload::parse(&text, "m.toml").unwrap().program else {
            panic!("{run}")
        };
        assert_eq!(command.command, ["make", "-j2", "a b"]);
    }
}

/// Checks the error message for `GOOD` with `from` replaced by `to`.
fn refused(from: &str, to: &str, message: Expect) {
    assert!(GOOD.contains(from), "{from}");
    let error = Workload::parse(&GOOD.replacen(from, to, 1), "tiny.toml").expect_err("a mistake");
    message.assert_eq(&error.to_string());
}

#[test]
fn unknown_missing_and_mistyped_keys_are_errors() {
    refused(
        "about =",
        "colour = 1\nabout =",
        expect![
            "tiny.toml:2: unknown field `colour`, expected one of `name`, `about`, `packages`, `server_cpus`, `client_cpus`, `server`, `command`, `file`, `operation`; see docs/workload.md"
        ],
    );
    refused(
        "concurrency = 2",
        "concurency = 2",
        expect![
            "tiny.toml:13: unknown field `concurency`, expected one of `command`, `port`, `environment`, `user`, `prepare`, `ready`, `populate`, `stop`, `concurrency`; see docs/workload.md"
        ],
    );
    refused(
        "requests = 100",
        "request = 100",
        expect![
            "tiny.toml:24: unknown field `request`, expected one of `name`, `about`, `client`, `connections`, `requests`, `duration_s`, `timeout_s`, `path`, `keep_alive`, `command`, `user`, `database`, `query`, `expect`; see docs/workload.md"
        ],
    );
    refused(
        "timeout_s = 1.5",
        "timeout_ms = 1.5",
        expect![
            "tiny.toml:10: unknown field `timeout_ms`, expected one of `path`, `run`, `timeout_s`; see docs/workload.md"
        ],
    );
    refused(
        "about = \"a tiny server\"\n",
        "",
        expect!["tiny.toml:1: missing field `about`; see docs/workload.md"],
    );
    refused(
        "keep_alive = false\n",
        "",
        expect![[r#"tiny.toml:20: client "http" needs keep_alive = true or false; see docs/workload.md"#]],
    );
    refused(
        "requests = 100\n",
        "",
        expect![[r#"tiny.toml:20: client "http" needs requests = NUMBER; see docs/workload.md"#]],
    );
    refused(
        "port = 8080",
        "port = \"8080\"",
        expect![[r#"tiny.toml:9: invalid type: string "8080", expected u16; see docs/workload.md"#]],
    );
    refused(
        "[[file]]",
        "[[file]",
        expect!["tiny.toml:15: unclosed array table, expected `]`; see docs/workload.md"],
    );
}

#[test]
fn values_out_of_range_are_errors() {
    refused(
        "port = 8080",
        "port = 70000",
        expect!["tiny.toml:9: invalid value: integer `70000`, expected u16; see docs/workload.md"],
    );
    refused(
        "port = 8080",
        "port = -1",
        expect!["tiny.toml:9: invalid value: integer `-1`, expected u16; see docs/workload.md"],
    );
    refused(
        "timeout_s = 1.5",
        "timeout_s = 0",
        expect![
            "tiny.toml:10: timeout_s must be between 0.001 and 3600 seconds, not 0; see docs/workload.md"
        ],
    );
    refused(
        "timeout_s = 1.5",
        "timeout_s = nan",
        expect![
            "tiny.toml:10: timeout_s must be between 0.001 and 3600 seconds, not NaN; see docs/workload.md"
        ],
    );
    refused(
        "signal = \"QUIT\"",
        "signal = \"KILL\"",
        expect![
            "tiny.toml:11: signal 'KILL' is not one of TERM, QUIT, INT, USR1, WINCH; see docs/workload.md"
        ],
    );
    refused(
        "connections = 4",
        "connections = 0",
        expect!["tiny.toml:23: connections must be at least 1; see docs/workload.md"],
    );
    refused(
        "requests = 100",
        "requests = 0",
        expect!["tiny.toml:24: requests must be at least 1; see docs/workload.md"],
    );
    refused(
        "concurrency = 2",
        "concurrency = 0",
        expect!["tiny.toml:13: concurrency must be at least 1; see docs/workload.md"],
    );
    refused(
        "status = 200",
        "status = 100",
        expect!["tiny.toml:26: status 100 is not a final HTTP status (200 to 599); see docs/workload.md"],
    );
}

#[test]
fn invalid_words_and_paths_are_errors() {
    refused(
        "server_cpus = \"split\"",
        "server_cpus = \"first\"",
        expect![[
            r#"tiny.toml:4: invalid value: string "first", expected "any", "split" or a list of CPU numbers; see docs/workload.md"#
        ]],
    );
    refused(
        "client_cpus = [1, 3]",
        "client_cpus = []",
        expect![
            "tiny.toml:5: a list of CPUs must contain at least one CPU, each below 1024; see docs/workload.md"
        ],
    );
    refused(
        "path = \"/a.html\"",
        "path = \"a.html\"",
        expect!["tiny.toml:22: path 'a.html' must start with / and contain no blanks; see docs/workload.md"],
    );
    refused(
        "path = \"/a.html\"",
        "path = \"/a.html HTTP/1.1\\r\\nX: y\"",
        expect![[
            r#"tiny.toml:22: path '/a.html HTTP/1.1\r\nX: y' must start with / and contain no blanks; see docs/workload.md"#
        ]],
    );
}

#[test]
fn paths_outside_the_scratch_directory_are_errors() {
    for path in ["/etc/passwd", "../a", "a/../../b", "", "a/", "./a"] {
        let text = GOOD.replacen("\"www/a.html\"", &format!("\"{path}\""), 1);
        let error = Workload::parse(&text, "tiny.toml").unwrap_err().to_string();
        assert!(error.starts_with("tiny.toml:16: file path '"), "{error}");
    }
}

#[test]
fn inconsistent_parts_are_errors() {
    refused(
        "file = \"www/a.html\"",
        "file = \"www/b.html\"",
        expect![
            "tiny.toml:26: expect refers to the file 'www/b.html', but no [[file]] has this path; see docs/workload.md"
        ],
    );
    refused(
        "file = \"www/a.html\"",
        "file = \"www/a.html\", bytes = 5",
        expect!["tiny.toml:26: expect needs either file or bytes; see docs/workload.md"],
    );
    refused(
        "content = \"hello\"",
        "content = \"hello\"\nsize = 5",
        expect!["tiny.toml:16: file 'www/a.html' needs either content or size; see docs/workload.md"],
    );
    refused(
        "content = \"hello\"",
        "content = \"hello\"\n[[file]]\npath = \"www/a.html\"\nsize = 1",
        expect!["tiny.toml:19: there are two files with the path 'www/a.html'; see docs/workload.md"],
    );
}

#[test]
fn contradictory_operations_and_programs_are_errors() {
    refused(
        "requests = 100",
        "requests = 100\nduration_s = 1",
        expect![[
            r#"tiny.toml:20: client "http" has no key duration_s, only requests, timeout_s, path, keep_alive; see docs/workload.md"#
        ]],
    );
    refused(
        "client = \"http\"",
        "client = \"wrk\"",
        expect![[
            r#"tiny.toml:20: client "wrk" has no key requests, only duration_s, path, keep_alive; see docs/workload.md"#
        ]],
    );
    refused(
        "client = \"http\"",
        "client = \"ab\"",
        expect![
            "tiny.toml:21: unknown variant `ab`, expected one of `http`, `redis`, `postgres`, `wrk`; see docs/workload.md"
        ],
    );
    refused(
        "command = \"tiny",
        "command = \"'tiny",
        expect![
            "tiny.toml:8: the command ends inside a quotation or after a backslash; see docs/workload.md"
        ],
    );
    refused(
        "command = \"tiny --root '{dir}/a b' --port {port}\"",
        "command = []",
        expect!["tiny.toml:8: the command is empty; see docs/workload.md"],
    );
    refused(
        "[server]",
        "[command]\nrun = \"true\"\n[server]",
        expect!["tiny.toml:1: a workload needs either [server] or [command]; see docs/workload.md"],
    );
    let operation = &GOOD[GOOD.find("[[operation]]").unwrap()..];
    refused(
        "[[operation]]",
        &format!("{operation}[[operation]]"),
        expect!["tiny.toml:28: there are two operations named 'page'; see docs/workload.md"],
    );
    refused(
        operation,
        "",
        expect!["tiny.toml:8: a [server] needs at least one [[operation]]; see docs/workload.md"],
    );
}

const DATABASE: &str = r#"name = "db"
about = "a database"
packages = ["db"]

[server]
command = "db {dir}"
port = 0
user = "db"
prepare = ["create {dir}", ["allow", "a b"]]
ready = { run = "ask {port}", timeout_s = 1 }
populate = ["fill {port}"]
stop = { signal = "INT", grace_s = 2 }

[[operation]]
name = "read"
client = "redis"
command = "GET 'a key'"
connections = 1
requests = 100
expect = { reply = "a value" }

[[operation]]
name = "row"
client = "postgres"
user = "reader"
database = "books"
query = "SELECT a, b FROM t"
connections = 2
requests = 200
timeout_s = 1
expect = { rows = [["1", "one"], ["2", "two"]], tag = "SELECT 2" }
"#;

#[test]
fn a_file_of_a_database_is_read_completely() {
    let workload = Workload::parse(DATABASE, "db.toml").unwrap();
    let Program::Server(server) = &workload.program else { panic!("{workload:?}") };
    assert_eq!(server.user.as_deref(), Some("db"));
    assert_eq!(server.prepare, [vec!["create", "{dir}"], vec!["allow", "a b"]]);
    assert_eq!(server.ready.sign, ReadySign::Command(vec!["ask".into(), "{port}".into()]));
    assert_eq!(server.populate, [["fill", "{port}"]]);
    let request = |name: &str| match &workload.operation(name).unwrap().client {
        Client::ClosedLoop(client) => client.request.clone(),
        Client::Wrk(_) => panic!("{name} uses wrk"),
    };
    let command = vec!["GET".into(), "a key".into()];
    assert_eq!(request("read"), Request::Redis { command, expect: ExpectedReply::Text("a value".into()) });
    let rows = [["1", "one"], ["2", "two"]].map(|row| row.map(String::from).to_vec()).to_vec();
    let (user, database, query) = ("reader".into(), "books".into(), "SELECT a, b FROM t".into());
    let expect = ExpectedResult { rows, tag: Some("SELECT 2".into()) };
    assert_eq!(request("row"), Request::Postgres { user, database, query, expect });
}

/// Checks the error message for `DATABASE` with `from` replaced by `to`.
fn refused_database(from: &str, to: &str, message: Expect) {
    assert!(DATABASE.contains(from), "{from}");
    let error = Workload::parse(&DATABASE.replacen(from, to, 1), "db.toml").expect_err("a mistake");
    message.assert_eq(&error.to_string());
}

#[test]
fn keys_of_another_client_are_errors() {
    refused_database(
        "requests = 100",
        "path = \"/\"\nrequests = 100",
        expect![[
            r#"db.toml:15: client "redis" has no key path, only requests, timeout_s, command; see docs/workload.md"#
        ]],
    );
    refused_database(
        "requests = 200",
        "keep_alive = true\nrequests = 200",
        expect![[
            r#"db.toml:23: client "postgres" has no key keep_alive, only requests, timeout_s, user, database, query; see docs/workload.md"#
        ]],
    );
    refused_database(
        "reply = \"a value\" }",
        "rows = [] }",
        expect![[
            r#"db.toml:20: client "redis" expects { reply = TEXT } or { bytes = NUMBER }; see docs/workload.md"#
        ]],
    );
    refused_database(
        "rows = [[\"1\", \"one\"], [\"2\", \"two\"]]",
        "bytes = 1",
        expect![[
            r#"db.toml:31: client "postgres" expects { rows = [[TEXT OF EACH COLUMN], ...], tag = TEXT }; see docs/workload.md"#
        ]],
    );
}

#[test]
fn incomplete_and_contradictory_parts_of_a_database_are_errors() {
    refused_database(
        "command = \"GET 'a key'\"\n",
        "",
        expect![[r#"db.toml:15: client "redis" needs command = "NAME ARGUMENTS"; see docs/workload.md"#]],
    );
    refused_database(
        "database = \"books\"\n",
        "",
        expect![[r#"db.toml:23: client "postgres" needs database = NAME; see docs/workload.md"#]],
    );
    refused_database(
        "\"SELECT a, b FROM t\"",
        "\"SELECT \\u0000\"",
        expect!["db.toml:27: a text for PostgreSQL cannot contain a null character; see docs/workload.md"],
    );
    refused_database(
        "rows = [[\"1\", \"one\"], [\"2\", \"two\"]], tag = \"SELECT 2\"",
        "rows = []",
        expect![[
            r#"db.toml:31: a result without rows needs the tag of the command, for example tag = "UPDATE 1"; see docs/workload.md"#
        ]],
    );
    refused_database(
        "timeout_s = 1 }",
        "path = \"/\", timeout_s = 1 }",
        expect!["db.toml:10: ready takes either path or run, not both; see docs/workload.md"],
    );
    refused_database(
        "prepare = [\"create {dir}\", [\"allow\", \"a b\"]]",
        "prepare = [\"\"]",
        expect!["db.toml:9: the command is empty; see docs/workload.md"],
    );
}

#[test]
fn the_error_for_a_missing_file_contains_its_path() {
    expect!["cannot read workload file no/such.toml: No such file or directory (os error 2)"]
        .assert_eq(&Workload::read(Path::new("no/such.toml")).unwrap_err().to_string());
}
