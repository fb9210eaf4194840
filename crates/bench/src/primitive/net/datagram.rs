//! Datagrams over the loopback interface (lmbench, 1996, section 6.7; lmbench 3, `lat_udp`).

use std::net::UdpSocket;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::partner::Partner;
use crate::primitive::kit::echo::Echo;
use crate::primitive::kit::limit;
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::step::Steps;
use crate::primitive::kit::udp_pair::{BYTES_MAX, udp_pair};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["udp.round_trip{size=1B,cpus=*}"],
    full: &[],
    cost: Per::Operation,
    calls: &["read", "write"],
    about: "a datagram to another process and one back, UDP over loopback",
    source: "lmbench 1996, section 6.7; lmbench 3, lat_udp",
    prepare: round_trip,
}];

/// A datagram to the partner and one back.
fn round_trip(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size(BYTES_MAX.into()))?;
    let (here, there) = udp_pair()?;
    let cpu = partner_cpu(id, setting)?;
    let partner = Partner::fork(cpu, || echo(&there))?;
    let sharing = sharing(setting, cpu, &partner);
    let echo = Echo::new(here.into(), size, &mut setting.rng, partner)?;
    Ok(Prepared { operation: Box::new(Steps::of(echo)), baseline: None, sharing })
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
