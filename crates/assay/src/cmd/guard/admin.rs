//! `assay guard --admin`: its status, and commands, over HTTP at a Unix socket that only its user can reach.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, bail};
use assay_proxy::{Change, TakeOver};
use assay_reflect::law::Law;
use assay_report::{Colour, Style, Symbols};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::published::{LONGEST_SILENCE, Published};
use crate::http::{self, Answer, Request};
use crate::section::guard::status;

/// A server of the commands.
pub struct Admin {
    path: PathBuf,
    /// Where the socket is until it is opened to all.
    unopened: PathBuf,
    /// Which file it is: another guard may have taken over the path.
    inode: u64,
    changes: Receiver<Change>,
}

/// What answers them.
struct Desk {
    law: &'static Law,
    published: Arc<Published>,
    terminated: Arc<AtomicBool>,
    changes: Sender<Change>,
}

/// Connections that wait to be accepted: commands are few.
const WAITING: i32 = 16;

const USAGE: &str =
    "use GET /status, POST /drain, or POST /end-sessions with the name of a role as the body\n";

impl Admin {
    /// Listens until it is dropped, as yet beside the path. `terminated` has the guard drain.
    pub fn listen(
        (path, take_over): (&Path, TakeOver),
        law: &'static Law,
        published: Arc<Published>,
        terminated: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let cannot = || cannot_listen(path);
        check(path, take_over).with_context(cannot)?;
        let mut unopened = OsString::from(path);
        unopened.push(format!(".{}", process::id()));
        let unopened = PathBuf::from(unopened);
        let (listener, inode) = listen_at(&unopened).with_context(cannot)?;
        let (sender, changes) = channel();
        let desk = Desk { law, published, terminated, changes: sender };
        http::serve(move || listener.accept().map(|(socket, _)| socket), move |request| desk.answer(request));
        Ok(Self { path: path.to_owned(), unopened, inode, changes })
    }

    /// Takes commands at the path from now on, instead of another guard that may do so.
    pub fn open(&self) -> anyhow::Result<()> {
        fs::rename(&self.unopened, &self.path).with_context(|| cannot_listen(&self.path))
    }

    /// Returns what has to change, if that was asked for.
    pub fn change(&self) -> Option<Change> {
        self.changes.try_recv().ok()
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        for path in [&self.unopened, &self.path] {
            if fs::symlink_metadata(path).is_ok_and(|file| file.ino() == self.inode) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Desk {
    fn answer(&self, request: &Request) -> Answer {
        match (&*request.method, &*request.path) {
            ("GET" | "HEAD", "/status") => self.status(),
            ("POST", "/drain") => {
                self.terminated.store(true, Ordering::Relaxed);
                Answer::text(200, "the guard ends with its sessions\n")
            }
            ("POST", "/end-sessions") => self.end_sessions(&request.body),
            _ => Answer::text(404, USAGE),
        }
    }

    fn status(&self) -> Answer {
        let style = Style { width: u16::MAX, symbols: Symbols::Unicode, colour: Colour::Plain };
        match self.published.present() {
            Ok(seen) => {
                let report = status(self.law, &seen.state, seen.curve.as_ref());
                Answer::text(200, assay_report::text::report(&report, &style))
            }
            Err(silence) => Answer::text(503, silence + "\n"),
        }
    }

    /// Ends the sessions of a role.
    fn end_sessions(&self, role: &[u8]) -> Answer {
        let without = |role: &'_ [u8], end| role.strip_suffix(&[end]).unwrap_or(role).to_vec();
        let role = without(&without(role, b'\n'), b'\r');
        if role.is_empty() {
            return Answer::text(400, USAGE);
        }
        let (number, ended) = channel();
        let sent = self.changes.send(Change::EndSessions { role, number });
        match sent.ok().and_then(|()| ended.recv_timeout(LONGEST_SILENCE).ok()) {
            Some(0) => Answer::text(200, "no session has this role\n"),
            Some(1) => Answer::text(200, "1 session ends when it is in no transaction\n"),
            Some(number) => {
                Answer::text(200, format!("{number} sessions end when they are in no transaction\n"))
            }
            None => {
                Answer::text(503, "the relay does not answer yet; the command may still be carried out\n")
            }
        }
    }
}

fn cannot_listen(path: &Path) -> String {
    format!("cannot listen at {}; give another path", path.display())
}

/// Refuses a path that is in use.
fn check(path: &Path, take_over: TakeOver) -> anyhow::Result<()> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        bail!("there is a file");
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags(), None)?;
    let is_left = connect(&socket, &SocketAddrUnix::new(path)?) == Err(Errno::CONNREFUSED);
    if !is_left && take_over == TakeOver::No {
        bail!("another process does so");
    }
    Ok(())
}

/// Listens at a path of this process, and returns the number of the file.
fn listen_at(path: &Path) -> io::Result<(UnixListener, u64)> {
    // It is left of a process with the same number.
    let _ = fs::remove_file(path);
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags(), None)?;
    // The file gets these permissions, less those of the umask.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, WAITING)?;
    let inode = fs::symlink_metadata(path)?.ino();
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(false)?;
    Ok((listener, inode))
}

fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}
