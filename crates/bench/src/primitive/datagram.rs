//! Datagrams over the loopback interface (lmbench, 1996, section 6.7; lmbench 3, `lat_udp`).

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

use assay_quantity::{PrimitiveId, Size};

use super::echo::Echo;
use super::limit;
use super::placement::{partner_cpu, sharing};
use super::step::Steps;
use crate::benchmark::{Prepared, Refusal, Setting};
use crate::partner::Partner;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    ids: &["udp.round_trip{size=1B,cpus=same}", "udp.round_trip{size=1B,cpus=different}"],
    profile: Profile::Quick,
    cost: Per::Operation,
    calls: &["read", "write"],
    about: "a datagram to another process and one back, through UDP over loopback",
    source: "lmbench 1996, section 6.7; lmbench 3, lat_udp",
    prepare: round_trip,
}];

/// Maximum size of a datagram: an IPv4 packet less both headers.
pub(crate) const BYTES_MAX: u16 = 65_507;

/// A datagram to the partner and one back.
fn round_trip(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size(BYTES_MAX.into()))?;
    let (here, there) = pair()?;
    let cpu = partner_cpu(id, setting)?;
    let partner = Partner::fork(cpu, || echo(&there))?;
    let sharing = sharing(setting, cpu, &partner);
    let echo = Echo::new(here.into(), size, &mut setting.rng, partner)?;
    Ok(Prepared { operation: Box::new(Steps::of(echo)), baseline: None, sharing })
}

/// Returns two connected sockets of the loopback interface.
pub(crate) fn pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let [here, there] =
        [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    Ok((here, there))
}

/// The main loop of the partner: sends every received datagram back.
fn echo(socket: &UdpSocket) -> libc::c_int {
    let mut message = [0; BYTES_MAX as usize];
    while let Ok(bytes) = rustix::io::read(socket, &mut message) {
        if rustix::io::write(socket, &message[..bytes]).is_err() {
            break;
        }
    }
    libc::EXIT_FAILURE
}
