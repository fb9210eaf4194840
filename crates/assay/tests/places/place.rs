//! A place for one test: its own files, store, report and temporary directory, and the checks that all
//! tests make afterwards.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use std::time::Duration;
use std::{mem, thread};

use assay_store::{Series, Store};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// Contents of a file before a test, which must be unchanged after a failure.
pub const OLD: &str = "an older file, whole\n";

/// Arguments of a run with all files in the place, which measures the machine for longer than any test needs.
pub const RUN: [&str; 10] = [
    "run",
    "workload.toml",
    "--report",
    "report.html",
    "--store",
    "store.db",
    "--budget",
    "60",
    "--precision",
    "0.001%",
];

/// Timeout for events that are immediate on an idle machine. Only a failure takes this long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Timeout for the end of the remaining processes after `assay` has ended.
const AFTERLIFE: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(10);

/// A directory that contains only `workload.toml` and an empty `tmp`.
pub struct Place {
    directory: TempDir,
}

impl Place {
    /// Creates a place with 400 requests to nginx in a round, which take about ten milliseconds.
    pub fn new() -> Self {
        Self::with_requests(400)
    }

    /// Returns a place with a damaged trace, `x.trace`, whose whole blocks contain 30 calls of `openat`.
    pub fn with_damaged_trace() -> Self {
        let killed = repository().join("crates/trace/tests/version-1/killed");
        let place = Self::new();
        fs::create_dir(place.path("x.trace")).unwrap();
        for file in ["manifest.json", "cpu0-000000.spool"] {
            fs::copy(killed.join(file), place.path("x.trace").join(file)).unwrap();
        }
        // A block of one record whose checksum is wrong.
        let block = [&1_u64.to_le_bytes()[..], &[0; 8 + 144]].concat();
        let spool = place.path("x.trace/cpu0-000000.spool");
        OpenOptions::new().append(true).open(&spool).unwrap().write_all(&block).unwrap();
        place
    }

    /// Creates a place with this number of requests to nginx in a round.
    pub fn with_requests(requests: u32) -> Self {
        let directory = tempfile::Builder::new().prefix("places-").tempdir().unwrap();
        // An unprivileged user enters it in some tests.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let place = Self { directory };
        fs::create_dir(place.path("tmp")).unwrap();
        let nginx = fs::read_to_string(repository().join("workloads/nginx.toml")).unwrap();
        assert!(nginx.contains("requests = 20000"), "workloads/nginx.toml has changed");
        let nginx = nginx.replace("requests = 20000", &format!("requests = {requests}"));
        fs::write(place.path("workload.toml"), nginx).unwrap();
        place
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns `assay` with these arguments.
    pub fn assay<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        self.command(&[env!("CARGO_BIN_EXE_assay")], arguments)
    }

    /// Returns a wrapper and its arguments, in the environment of the place.
    pub fn command<S: AsRef<OsStr>>(&self, wrapper: &[&str], arguments: &[S]) -> Command {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).args(arguments).current_dir(self.directory.path());
        command.env("TMPDIR", self.path("tmp")).env("HOME", self.directory.path());
        command.env("XDG_DATA_HOME", self.directory.path()).stdin(Stdio::null());
        command
    }

    /// Runs `assay` with these arguments, after a shell has run `prepare` in its own mount namespace. It must
    /// end within [`PATIENCE`]. Afterwards the file systems of `prepare` are gone, and the contents of `full`
    /// are in `kept`.
    pub fn unshared(&self, prepare: &str, arguments: &[&str]) -> Said {
        self.unshared_with(|command| command, prepare, arguments)
    }

    /// Like [`Place::unshared`], after `change` has changed the command.
    pub fn unshared_with(
        &self,
        change: impl Fn(Command) -> Command,
        prepare: &str,
        arguments: &[&str],
    ) -> Said {
        fs::create_dir(self.path("full")).unwrap();
        fs::create_dir(self.path("kept")).unwrap();
        let script = format!(
            "set -e\n{prepare}\nset +e\ntimeout -s KILL {} \"$@\"; code=$?\ncp -a full/. kept/ && exit $code",
            PATIENCE.as_secs()
        );
        let wrapper = ["unshare", "--mount", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_assay")];
        Said::by(&mut change(self.command(&wrapper, arguments)))
    }

    /// Starts `assay` in the background.
    pub fn start(&self, arguments: &[&str]) -> Going {
        self.start_command(&mut self.assay(arguments))
    }

    /// Starts a command of the place in the background.
    pub fn start_command(&self, command: &mut Command) -> Going {
        let stdout = File::create(self.path("stdout")).unwrap();
        let mut child = command.stdout(stdout).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Going { child, lines, stdout: self.path("stdout"), stderr: String::new() }
    }

    /// Returns the list of `assay history` for the place's store.
    pub fn history(&self) -> String {
        let said = Said::by(&mut self.assay(&["history", "--store", "store.db", "--format", "csv"]));
        assert!(said.status.success(), "the store does not open: {}", said.stderr);
        said.stdout
    }

    /// Returns the samples of the only run in the place's store; empty if there is no store yet.
    pub fn samples(&self) -> Vec<Series> {
        if !self.path("store.db").exists() {
            return Vec::new();
        }
        let store = Store::open(&self.path("store.db")).unwrap();
        let run = store.latest(0).unwrap();
        run.map(|run| store.samples(run.id).unwrap()).unwrap_or_default()
    }

    /// Asserts that all processes that were started here end soon: nginx, watchdogs, `assay sample` and its
    /// partners.
    pub fn assert_nothing_runs(&self, story: &str) {
        if patiently(AFTERLIFE, || self.processes().is_empty().then_some(())).is_some() {
            return;
        }
        let left = self.processes();
        for (process, _) in &left {
            // It may have ended in the meantime.
            let _ = kill_process(*process, Signal::KILL);
        }
        panic!("{story}: left running: {left:#?}");
    }

    /// Asserts that the directory of temporary files is empty, and that there are no half-written files.
    pub fn assert_no_litter(&self, story: &str) {
        for directory in ["tmp", ""] {
            let entries = fs::read_dir(self.path(directory)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap_or_default());
            let litter: Vec<String> =
                names.filter(|name| directory == "tmp" || name.starts_with('.')).collect();
            assert!(litter.is_empty(), "{story}: left in '{directory}': {litter:?}");
        }
    }

    /// Returns the processes whose command line, environment or working directory contains this place:
    /// servers and samples get a directory in it, and their watchdogs its environment.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let place = self.directory.path().to_str().unwrap();
        let names = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
        let numbers = names.filter_map(|name| name.to_str()?.parse().ok());
        let ours = numbers.filter_map(|number: i32| {
            let process = Path::new("/proc").join(number.to_string());
            let of = |name: &str| fs::read(process.join(name)).unwrap_or_default();
            let command = String::from_utf8_lossy(&of("cmdline")).replace('\0', " ");
            let environment = String::from_utf8_lossy(&of("environ")).into_owned();
            let directory = fs::read_link(process.join("cwd")).unwrap_or_default();
            let named = command.contains(place)
                || environment.contains(place)
                || directory.starts_with(self.directory.path());
            Pid::from_raw(number).filter(|_| named).map(|process| (process, command))
        });
        ours.collect()
    }
}

/// Exit status and output of a process.
#[derive(Debug)]
pub struct Said {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Runs a command to its end.
    pub fn by(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let said = Self { status, stdout: text(stdout), stderr: text(stderr) };
        said.assert_no_panic();
        said
    }

    /// Returns the one line of a failure. Otherwise stderr may contain only phases.
    pub fn complaint(&self) -> &str {
        assert!(!self.status.success(), "it succeeded: {self:?}");
        let (complaints, others): (Vec<&str>, Vec<&str>) =
            self.stderr.lines().partition(|line| line.starts_with("assay: "));
        assert_eq!(complaints.len(), 1, "not one complaint: {}", self.stderr);
        let phases = [
            "starting ",
            "finding the sizes of the caches",
            "measuring ",
            "tracing ",
            "booting ",
            "the report is written to ",
            "the raw samples are stored as run ",
        ];
        for other in others {
            assert!(phases.iter().any(|phase| other.starts_with(phase)), "not a phase: {other}");
        }
        assert_eq!(self.stderr.lines().last(), complaints.first().copied(), "not the last line");
        complaints[0]
    }

    /// Asserts that the line of a failure contains these words.
    pub fn complains_of(&self, words: &[&str]) {
        let complaint = self.complaint();
        for word in words {
            assert!(complaint.contains(word), "no '{word}' in: {complaint}");
        }
    }

    fn assert_no_panic(&self) {
        assert!(!self.stderr.contains("panicked at ") && self.status.code() != Some(101), "{self:?}");
    }
}

/// A running `assay`.
pub struct Going {
    child: Child,
    lines: Receiver<String>,
    stdout: PathBuf,
    stderr: String,
}

impl Going {
    /// Waits until a line on stderr contains these words.
    pub fn await_line(&mut self, words: &str) {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no '{words}' in: {}", self.stderr));
            self.stderr.push_str(&line);
            self.stderr.push('\n');
            if line.contains(words) {
                return;
            }
        }
    }

    /// Sends a signal to this process only, as `kill` does.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal to its process group, as a terminal does.
    pub fn signal_group(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it ends by itself.
    pub fn end(mut self) -> Said {
        let status = patiently(PATIENCE, || self.child.try_wait().unwrap());
        let status = status.unwrap_or_else(|| panic!("it does not end; stderr: {}", self.stderr));
        self.stderr.extend(self.lines.iter().map(|line| line + "\n"));
        let stdout = fs::read_to_string(&self.stdout).unwrap();
        let said = Said { status, stdout, stderr: mem::take(&mut self.stderr) };
        said.assert_no_panic();
        said
    }
}

impl Drop for Going {
    /// Ends the process of a failed test.
    fn drop(&mut self) {
        // After `end` there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until there is a result or the limit has passed.
pub fn patiently<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let mut left = limit;
    loop {
        let answer = ask();
        if answer.is_some() || left.is_zero() {
            return answer;
        }
        thread::sleep(PAUSE);
        left = left.saturating_sub(PAUSE);
    }
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
