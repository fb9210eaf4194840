//! Databases, started, filled, loaded and stopped: Redis and PostgreSQL as Debian ships them.
#![expect(clippy::unwrap_used, reason = "the functions that tests share are tests too")]

mod shared;

use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use assay_workload::client::{Failure, LoadError};
use assay_workload::{
    Client, Content, Operation, ReadySign, Request, ScratchFile, Server, ServerProgram, StartError, Workload,
};
use expect_test::expect;

use self::shared::{program, shipped};

static GO_ON: AtomicBool = AtomicBool::new(false);

fn start(workload: &Workload) -> Result<Server, StartError> {
    Server::start(workload, None, &GO_ON)
}

/// Runs a client program of the database and returns what it prints.
fn ask(server: &Server, program: &str, arguments: &[&str]) -> String {
    let port = server.address().port().to_string();
    let program = assay_process::find_program(program).unwrap();
    let output = Command::new(program).args(["-p", &port]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn sql(server: &Server, query: &str) -> String {
    let socket = server.dir().join("data");
    ask(server, "psql", &["-h", socket.to_str().unwrap(), "-U", "postgres", "-A", "-t", "-c", query])
}

/// Loads the server with 101 requests of `operation`.
fn load(server: &Server, operation: &Operation) -> Result<u64, LoadError> {
    server.load(operation, NonZeroU64::new(101), &GO_ON, &mut |_| {}).map(|load| load.requests)
}

/// Checks that the load of `operation` fails with this first failure only.
fn fails(server: &Server, operation: &Operation, kind: Failure, problem: &str) {
    match load(server, operation).unwrap_err() {
        LoadError::Failed { completed: 0, failures, first } => {
            assert_eq!((failures.count(kind), failures.total()), (1, 1), "{first}");
            assert_eq!(first, problem);
        }
        other => panic!("{other}"),
    }
}

/// Returns the first operation of `workload` with another request.
fn with_request(workload: &Workload, change: impl Fn(&mut Request)) -> Operation {
    let mut operation = workload.operations()[0].clone();
    match &mut operation.client {
        Client::ClosedLoop(client) => change(&mut client.request),
        Client::Wrk(_) => panic!("{operation:?}"),
    }
    operation
}

#[test]
fn redis_executes_exactly_the_commands_that_the_client_counts() {
    let workload = shipped("redis");
    let server = start(&workload).unwrap();
    for operation in workload.operations() {
        ask(&server, "redis-cli", &["CONFIG", "RESETSTAT"]);
        assert_eq!(load(&server, operation).unwrap(), 101);
        let command = if operation.name == "set" { "set" } else { "get" };
        let counts = ask(&server, "redis-cli", &["INFO", "commandstats"]);
        assert!(counts.contains(&format!("cmdstat_{command}:calls=101,")), "{}: {counts}", operation.name);
    }
}

#[test]
fn a_wrong_reply_of_redis_is_an_error_not_a_rate() {
    let workload = shipped("redis");
    let server = start(&workload).unwrap();
    let get = &workload.operations()[0];
    ask(&server, "redis-cli", &["SETRANGE", "key", "63", "x"]);
    let different = "the reply is a string that differs at byte 63, not the expected one";
    fails(&server, get, Failure::WrongContent, different);
    ask(&server, "redis-cli", &["DEL", "key"]);
    fails(&server, get, Failure::WrongContent, "the reply is nil, not the expected one");
    ask(&server, "redis-cli", &["LPUSH", "key", "x"]);
    let list = "WRONGTYPE Operation against a key holding the wrong kind of value";
    fails(&server, get, Failure::Error, list);
}

#[test]
fn postgres_executes_exactly_the_queries_that_the_client_counts() {
    let workload = shipped("postgres");
    let server = start(&workload).unwrap();
    let scans = || {
        let query = "SELECT idx_scan FROM pg_stat_user_tables WHERE relname = 'pgbench_accounts'";
        sql(&server, query).parse::<u64>().unwrap()
    };
    let mut expected = scans();
    for operation in workload.operations() {
        assert_eq!(load(&server, operation).unwrap(), 101);
        expected += 101;
        // A session adds its counts to the shared ones when it ends.
        for _ in 0..1000 {
            if scans() >= expected {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(scans(), expected, "{}", operation.name);
    }
}

#[test]
fn a_wrong_result_of_postgres_is_an_error_not_a_rate() {
    let workload = shipped("postgres");
    let server = start(&workload).unwrap();
    let point_query = &workload.operations()[0];
    sql(&server, "UPDATE pgbench_accounts SET abalance = 7 WHERE aid = 50000");
    fails(&server, point_query, Failure::WrongContent, "row 1 is (7) instead of (0)");
    sql(&server, "DELETE FROM pgbench_accounts WHERE aid = 50000");
    fails(&server, point_query, Failure::WrongContent, "number of rows is 0 instead of 1");
    let with = |change: fn(&mut Request)| with_request(&workload, change);
    let division = with(|request| match request {
        Request::Postgres { query, .. } => "SELECT 1 / 0".clone_into(query),
        other => panic!("{other:?}"),
    });
    fails(&server, &division, Failure::Error, "ERROR: division by zero");
    let nobody = with(|request| match request {
        Request::Postgres { user, .. } => "nobody".clone_into(user),
        other => panic!("{other:?}"),
    });
    let refused = "FATAL: no pg_hba.conf entry for host \"127.0.0.1\", user \"nobody\", database \"postgres\", no encryption";
    fails(&server, &nobody, Failure::Error, refused);
}

#[test]
fn a_server_with_a_user_and_its_commands_run_as_that_user_if_root_starts_them() {
    let mut workload = shipped("redis");
    let file = ScratchFile { path: "a/b/file".into(), content: Content::Text(String::new()) };
    program(&mut workload).files.push(file);
    program(&mut workload).prepare = vec![shell("id -u >a/b/new; id -G >>a/b/file")];
    let server = start(&workload).unwrap();
    let (uid, gid) = if rustix::process::geteuid().is_root() {
        let user = nix::unistd::User::from_name("redis").unwrap().unwrap();
        (user.uid.as_raw(), user.gid.as_raw())
    } else {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    };
    for pid in server.processes().unwrap() {
        let process = fs::metadata(format!("/proc/{pid}")).unwrap();
        assert_eq!((process.uid(), process.gid()), (uid, gid), "process {pid}");
    }
    for name in ["", "a", "a/b", "a/b/file", "a/b/new"] {
        assert_eq!(fs::metadata(server.dir().join(name)).unwrap().uid(), uid, "{name:?}");
    }
    let read = |name: &str| fs::read_to_string(server.dir().join(name)).unwrap();
    assert_eq!(read("a/b/new"), format!("{uid}\n"));
    if rustix::process::geteuid().is_root() {
        assert_eq!(read("a/b/file"), format!("{gid}\n"), "the groups of root");
    }
}

#[test]
fn a_dropped_database_leaves_no_shared_memory() {
    let server = start(&shipped("postgres")).unwrap();
    let creator = server.pid().to_string();
    // Columns: key, shmid, perms, size, cpid (proc_sysvipc_shm(5)).
    let segments = || {
        let list = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        list.lines().filter(|line| line.split_whitespace().nth(4) == Some(creator.as_str())).count()
    };
    assert_eq!(segments(), 1);
    drop(server);
    assert_eq!(segments(), 0);
}

#[test]
fn a_user_that_does_not_exist_is_an_error_for_root() {
    let mut workload = shipped("redis");
    program(&mut workload).user = Some("assay-no-such-user".into());
    let result = start(&workload);
    if rustix::process::geteuid().is_root() {
        expect![
            "user 'assay-no-such-user' does not exist; install the Debian packages redis-server redis-tools"
        ]
        .assert_eq(&result.unwrap_err().to_string());
    } else {
        result.unwrap();
    }
}

#[test]
fn a_directory_that_the_user_of_the_server_cannot_enter_is_named_with_a_remedy() {
    let mut workload = shipped("redis");
    program(&mut workload).prepare = vec![shell("chmod 0 {dir}")];
    let error = start(&workload).unwrap_err();
    if rustix::process::geteuid().is_root() {
        let StartError::NoEntry { dir, .. } = &error else { panic!("{error}") };
        expect![
            "user 'redis' cannot run programs in DIR; set TMPDIR to a directory that every user may enter"
        ]
        .assert_eq(&error.to_string().replace(dir, "DIR"));
    } else {
        assert!(matches!(error, StartError::Io { .. }), "{error}");
    }
}

/// A command of a shell.
fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

#[test]
fn a_command_that_fails_before_or_after_the_start_is_an_error_with_its_output() {
    let mut workload = shipped("redis");
    program(&mut workload).prepare = vec![shell("test {port} -gt 0"), shell("echo no space; exit 3")];
    let error = start(&workload).unwrap_err();
    expect!["a command of `prepare` failed: 'sh -c echo no space; exit 3' ended with status 3; the last output: no space"]
        .assert_eq(&error.to_string());

    let mut workload = shipped("redis");
    program(&mut workload).populate[0][6] = "SIT".into();
    let error = start(&workload).unwrap_err().to_string();
    assert!(error.starts_with("a command of `populate` failed: 'redis-cli -e "), "{error}");
    assert!(error.contains("; the last output: ") && error.contains("ERR unknown command 'SIT'"), "{error}");
}

#[test]
fn the_end_of_the_server_is_the_error_and_not_the_failure_of_a_command() {
    let ends_with = |status: i32, change: fn(&mut ServerProgram)| {
        let mut workload = shipped("redis");
        change(program(&mut workload));
        let error = start(&workload).unwrap_err();
        assert!(matches!(error, StartError::Exited { .. }), "{error}");
        assert!(error.to_string().contains(&format!("ended with status {status}")), "{error}");
    };
    ends_with(5, |server| {
        server.command = shell("exit 5");
        server.ready.sign = ReadySign::Command(shell("exec sleep 1000"));
    });
    // Fails when the server has ended.
    ends_with(0, |server| {
        let script = "pid=$(redis-cli -p {port} INFO server | sed -n 's/^process_id:\\([0-9]*\\).*/\\1/p')
            redis-cli -p {port} SHUTDOWN NOSAVE
            while grep -q '^State:.[^Z]' /proc/$pid/status 2>/dev/null; do sleep 0.01; done
            exit 1";
        server.populate = vec![shell(script)];
    });
}

#[test]
fn a_start_ends_at_its_time_limit_in_every_command() {
    let commands: [fn(&mut ServerProgram); 2] = [
        |server| server.prepare = vec![shell("exec sleep 1000")],
        |server| server.ready.sign = ReadySign::Command(shell("exec sleep 1000")),
    ];
    for (key, change) in ["prepare", "ready"].into_iter().zip(commands) {
        let mut workload = shipped("redis");
        change(program(&mut workload));
        program(&mut workload).ready.timeout = Duration::from_secs(1);
        let error = start(&workload).unwrap_err().to_string();
        let expected = format!(
            "a command of `{key}` failed: 'sh -c exec sleep 1000' did not end within 1s, the time limit of the start"
        );
        assert_eq!(error.split(';').next(), Some(expected.as_str()), "{error}");
    }
}

#[test]
fn a_command_before_the_start_can_be_stopped() {
    let mut workload = shipped("redis");
    program(&mut workload).prepare = vec![shell("exec sleep 1000")];
    program(&mut workload).ready.timeout = Duration::from_secs(100_000);
    let error = Server::start(&workload, None, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, StartError::Stopped { .. }), "{error}");
}
