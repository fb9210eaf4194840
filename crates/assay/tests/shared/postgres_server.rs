//! A PostgreSQL server of the distribution, with a database of its own.

use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use assay_process::find_program;
use postgres::{Client, NoTls};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A running server, which ends with its test.
pub struct Server {
    directory: TempDir,
    child: Child,
}

impl Server {
    /// Starts one that no session but those of the test uses.
    pub fn start() -> Self {
        Self::start_with(&["listen_addresses="])
    }

    /// Starts one with these settings.
    pub fn start_with(settings: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The server refuses to run as root.
        let id = Command::new("id").args(["-u", "postgres"]).output().unwrap().stdout;
        let id = String::from_utf8(id).unwrap().trim().parse().unwrap();
        chown(directory.path(), Some(id), None).unwrap();
        let data = directory.path().join("data");
        let initdb = as_postgres("initdb")
            .args(["--no-sync", "--no-locale", "--auth=trust", "--username=postgres", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        let child = as_postgres("postgres")
            .args(["fsync=off", "autovacuum=off"].iter().chain(settings).flat_map(|setting| ["-c", *setting]))
            .arg("-k")
            .arg(directory.path())
            .arg("-D")
            .arg(&data)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self { directory, child };
        // An hour, unless it has ended.
        for _ in 0..360_000 {
            if server.connect("postgres").is_ok() {
                return server;
            }
            assert!(server.child.try_wait().unwrap().is_none(), "the server has ended");
            sleep(Duration::from_millis(10));
        }
        panic!("the server does not answer");
    }

    /// The address of its database, for a role.
    pub fn address(&self, role: &str) -> String {
        format!("host={} user={role} dbname=postgres", self.directory.path().display())
    }

    /// A session of a role.
    pub fn connect(&self, role: &str) -> Result<Client, postgres::Error> {
        Client::connect(&self.address(role), NoTls)
    }

    /// A session of the administrator.
    pub fn session(&self) -> Client {
        self.connect("postgres").unwrap()
    }

    /// Ends all sessions and the server.
    pub fn stop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
            self.child.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn as_postgres(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
    command.arg(programs().join(program)).stdin(Stdio::null());
    command
}

/// The directory of the programs of the server.
fn programs() -> PathBuf {
    find_program("initdb").unwrap().parent().unwrap().to_owned()
}
