//! `kill -9` of the process that holds a server ends the server. The test starts a second copy of itself,
//! which starts the server, reports it and waits to be killed.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{env, fs, thread};

use assay_process::Process;
use assay_workload::{Program, Server, Workload};

fn main() {
    match env::args().skip_while(|argument| argument != "--hold").nth(1) {
        Some(workload) => hold(&workload),
        None => {
            for workload in ["nginx", "apache", "leaves its group"] {
                a_server_does_not_outlive_the_kill_of_its_holder(workload);
            }
        }
    }
}

/// Runs in the second copy.
fn hold(name: &str) {
    let server = Server::start(&workload(name), None, &AtomicBool::new(false)).expect("the server starts");
    let mut pids = server.processes().expect("/proc is readable");
    if name == "leaves its group" {
        while pids.len() < 2 {
            pids = server.processes().expect("/proc is readable");
        }
    }
    let words: Vec<String> = pids.iter().map(i32::to_string).collect();
    writeln!(io::stdout(), "{}\n{}", words.join(" "), server.dir().display()).expect("the first copy reads");
    loop {
        thread::park();
    }
}

fn a_server_does_not_outlive_the_kill_of_its_holder(name: &str) {
    let this = env::current_exe().expect("a test has a path");
    let mut holder =
        Command::new(this).args(["--hold", name]).stdout(Stdio::piped()).spawn().expect("the copy starts");
    let mut lines = BufReader::new(holder.stdout.take().expect("it is piped")).lines();
    let mut line = || lines.next().expect("the copy reports its server").expect("in UTF-8");
    let pids: Vec<i32> = line().split(' ').map(|pid| pid.parse().expect("a number")).collect();
    let dir = line();
    assert!(pids.len() >= 2 && pids.iter().all(|pid| alive(*pid)), "{name}: {pids:?}");

    holder.kill().expect("SIGKILL can be sent");
    holder.wait().expect("the copy is a child");
    // The watchdog is a shell: wait much longer than it requires, then fail.
    for _ in 0..6000 {
        if !pids.iter().any(|pid| alive(*pid)) {
            fs::remove_dir_all(&dir).expect("a killed holder leaves its scratch directory");
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{name}: some of {pids:?} still run 60 s after their holder was killed");
}

fn workload(name: &str) -> Workload {
    let workloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads");
    if name != "leaves its group" {
        return Workload::read(&workloads.join(name).with_extension("toml")).expect("a shipped workload");
    }
    let mut workload = Workload::read(&workloads.join("nginx.toml")).expect("a shipped workload");
    if let Program::Server(server) = &mut workload.program {
        let script = "setsid sleep 1000 & exec nginx -p {dir} -c {dir}/nginx.conf -e {dir}/error.log";
        server.command = ["sh", "-c", script].map(str::to_owned).to_vec();
    }
    workload
}

fn alive(pid: i32) -> bool {
    Process::read(pid).expect("/proc is readable").is_some_and(|process| process.is_alive())
}
