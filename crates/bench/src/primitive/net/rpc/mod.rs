//! The null call of ONC remote procedure calls (lmbench, 1996, section 6.7; lmbench 3, `lat_rpc`): the cost
//! of a round trip over TCP or UDP with encoding, matching and decoding of messages on both sides.
//!
//! Both sides are ours, so the figure includes no port mapper and no RPC library; the messages conform to the
//! standard. Every reply must report success and contain the number of its call.

mod message;

use std::io;
use std::os::fd::OwnedFd;

use assay_quantity::{Key, PrimitiveId};
use rand::RngExt;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use self::message::{Call, MESSAGE_BYTES_MAX, Outcome, Reply, fragment_bytes, fragment_mark};
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::partner::Partner;
use crate::primitive::kit::echo::PATIENCE;
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::socket::{Listener, read, write};
use crate::primitive::kit::step::{Step, Steps};
use crate::primitive::kit::udp_pair::udp_pair;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["rpc.null_call{cpus=different,transport=*}"],
    full: &[],
    cost: Per::Operation,
    calls: &["write", "read"],
    about: "a call of the null procedure (ONC RPC, RFC 5531) of a server in another process, and its reply",
    source: "lmbench 1996, section 6.7; lmbench 3, lat_rpc",
    prepare: null_call,
}];

/// Program, version and procedure: a program number from the range reserved for users, and procedure 0, which
/// by convention has no arguments and no result (RFC 5531, sections 12.1 and 13.3).
const PROGRAM: u32 = 0x2000_0a55;
const VERSION: u32 = 1;
const NULL: u32 = 0;

/// Prepares a null call to a server in the partner.
fn null_call(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    match id.word(Key::Transport) {
        "udp" => {
            let (here, there) = udp_pair()?;
            calls(id, setting, Datagrams(here.into()), Datagrams(there.into()))
        }
        _ => {
            let (here, there) = Listener::open(1)?.pair()?;
            calls(id, setting, Records(here), Records(there))
        }
    }
}

fn calls<T: Transport + 'static>(
    id: &PrimitiveId,
    setting: &mut Setting,
    here: T,
    there: T,
) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let partner = Partner::fork(cpu, || serve(&there))?;
    drop(there);
    let sharing = sharing(setting, cpu, &partner);
    set_socket_timeout(here.socket(), Timeout::Recv, Some(PATIENCE)).map_err(io::Error::from)?;
    let next = Call { xid: setting.rng.random(), program: PROGRAM, version: VERSION, procedure: NULL };
    let calls = NullCalls { transport: here, next, buffer: [0; MESSAGE_BYTES_MAX], _partner: partner };
    Ok(Prepared { operation: Box::new(Steps::of(calls)), baseline: None, sharing })
}

struct NullCalls<T> {
    transport: T,
    next: Call,
    buffer: [u8; MESSAGE_BYTES_MAX],
    _partner: Partner,
}

impl<T: Transport> Step for NullCalls<T> {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.transport.send(&self.next.encode())?;
        let reply = Reply::decode(self.transport.receive(&mut self.buffer)?).map_err(io::Error::other)?;
        reply.expect_success(self.next.xid).map_err(io::Error::other)?;
        self.next.xid = self.next.xid.wrapping_add(1);
        Ok(())
    }

    /// `step` has already checked the reply to every call.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the partner: replies to each call.
fn serve(transport: &impl Transport) -> libc::c_int {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    while let Ok(message) = transport.receive(&mut buffer) {
        // As in the standard, a message that is not a call has no reply.
        let Ok(call) = Call::decode(message) else { continue };
        let (reply, length) = Reply { xid: call.xid, outcome: answer(&call) }.encode();
        if transport.send(&reply[..length]).is_err() {
            break;
        }
    }
    libc::EXIT_FAILURE
}

/// Returns the outcome of a call.
fn answer(call: &Call) -> Outcome {
    match (call.program, call.version, call.procedure) {
        (PROGRAM, VERSION, NULL) => Outcome::Success,
        (PROGRAM, VERSION, _) => Outcome::ProcedureUnavailable,
        (PROGRAM, _, _) => Outcome::ProgramMismatch { lowest: VERSION, highest: VERSION },
        _ => Outcome::ProgramUnavailable,
    }
}

/// The transport of messages.
trait Transport {
    fn socket(&self) -> &OwnedFd;

    /// Sends one message.
    fn send(&self, message: &[u8]) -> io::Result<()>;

    /// Receives one message.
    fn receive<'a>(&self, buffer: &'a mut [u8; MESSAGE_BYTES_MAX]) -> io::Result<&'a [u8]>;
}

/// A datagram per message.
struct Datagrams(OwnedFd);

impl Transport for Datagrams {
    fn socket(&self) -> &OwnedFd {
        &self.0
    }

    #[inline]
    fn send(&self, message: &[u8]) -> io::Result<()> {
        write(&self.0, message)
    }

    #[inline]
    fn receive<'a>(&self, buffer: &'a mut [u8; MESSAGE_BYTES_MAX]) -> io::Result<&'a [u8]> {
        let length = read(&self.0, buffer)?;
        Ok(&buffer[..length])
    }
}

/// A record per message, each one fragment of a stream (RFC 5531, section 11).
struct Records(OwnedFd);

/// Bytes of a fragment's mark.
const MARK: usize = 4;

impl Transport for Records {
    fn socket(&self) -> &OwnedFd {
        &self.0
    }

    #[inline]
    fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut record = [0; MARK + MESSAGE_BYTES_MAX];
        let length = MARK + message.len();
        record[..MARK].copy_from_slice(&fragment_mark(message.len()).map_err(io::Error::other)?);
        record[MARK..length].copy_from_slice(message);
        write(&self.0, &record[..length])
    }

    /// One call is in progress at a time, so all received bytes belong to one record.
    #[inline]
    fn receive<'a>(&self, buffer: &'a mut [u8; MESSAGE_BYTES_MAX]) -> io::Result<&'a [u8]> {
        let mut got = 0;
        loop {
            got += read(&self.0, &mut buffer[got..])?;
            let Some((mark, message)) = buffer[..got].split_first_chunk::<MARK>() else { continue };
            let due = fragment_bytes(*mark).map_err(io::Error::other)?;
            if message.len() == due {
                break;
            }
            if message.len() > due || got == buffer.len() {
                return Err(io::Error::other(format!("received {got} bytes for a record of {due}")));
            }
        }
        Ok(&buffer[MARK..got])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call { xid: 7, program: PROGRAM, version: VERSION, procedure: NULL }
    }

    #[test]
    fn only_the_null_procedure_of_our_program_succeeds() {
        assert_eq!(answer(&call()), Outcome::Success);
        assert_eq!(answer(&Call { procedure: 1, ..call() }), Outcome::ProcedureUnavailable);
        let mismatch = Outcome::ProgramMismatch { lowest: 1, highest: 1 };
        assert_eq!(answer(&Call { version: 2, ..call() }), mismatch);
        assert_eq!(answer(&Call { program: 100_003, ..call() }), Outcome::ProgramUnavailable);
    }

    #[test]
    fn a_record_is_put_together_from_parts_and_one_that_is_too_long_is_an_error() {
        let (here, there) = Listener::open(1).unwrap().pair().unwrap();
        let there = Records(there);
        let mut record = fragment_mark(6).unwrap().to_vec();
        record.extend_from_slice(b"abcdef");
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for part in record.chunks(3) {
                    write(&here, part).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            });
            assert_eq!(there.receive(&mut buffer).unwrap(), b"abcdef");
        });
        record.push(b'g');
        write(&here, &record).unwrap();
        let error = there.receive(&mut buffer).unwrap_err().to_string();
        assert_eq!(error, "received 11 bytes for a record of 6");
        drop(here);
        assert!(there.receive(&mut buffer).unwrap_err().to_string().contains("has closed the connection"));
    }

    #[test]
    fn a_reply_to_another_call_is_an_error() {
        let (here, there) = udp_pair().unwrap();
        let (reply, length) = Reply { xid: 1, outcome: Outcome::Success }.encode();
        there.send(&reply[..length]).unwrap();
        let partner = Partner::fork(0, || 0).unwrap();
        let next = Call { xid: 2, ..call() };
        let buffer = [0; MESSAGE_BYTES_MAX];
        let mut calls = NullCalls { transport: Datagrams(here.into()), next, buffer, _partner: partner };
        let error = calls.step().unwrap_err().to_string();
        assert_eq!(error, "received a reply to call 1 instead of call 2");
    }
}
