//! Two UDP sockets of the loopback interface, connected to each other.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};

/// Maximum size of a datagram: an IPv4 packet less both headers.
pub(crate) const BYTES_MAX: u16 = 65_507;

/// Returns two connected sockets of the loopback interface.
pub(crate) fn udp_pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let [here, there] =
        [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    Ok((here, there))
}
