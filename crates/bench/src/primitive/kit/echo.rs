//! A message to a partner that sends it back: a round trip over any socket.
//!
//! Every message begins with the next number of a sequence, which its echo must contain, and the last echo of
//! a batch is compared completely. A message without an echo within [`PATIENCE`] ends the sample.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::socket::{read_all, write};
use super::step::Step;
use crate::platform::layout::Buffer;

/// Timeout for an echo: far longer than any network takes, and short enough to end a sample whose datagram
/// was lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Messages and their echoes.
pub(crate) struct Echo<K> {
    socket: OwnedFd,
    out: Buffer,
    back: Buffer,
    number: u8,
    /// Total number of received echoes.
    echoes: u64,
    /// Keeps the other side running.
    _answering: K,
}

impl<K> Echo<K> {
    /// Returns an echo of messages of `size` bytes, at least one, through a connected socket. The other side
    /// ends when `answering` is dropped.
    pub(crate) fn new(socket: OwnedFd, size: usize, rng: &mut Pcg64Mcg, answering: K) -> io::Result<Self> {
        set_socket_timeout(socket.as_fd(), Timeout::Recv, Some(PATIENCE))?;
        let mut out = Buffer::new(size, rng)?;
        out.fill_with(|| rng.random());
        let back = Buffer::new(size, rng)?;
        Ok(Self { socket, out, back, number: rng.random(), echoes: 0, _answering: answering })
    }
}

impl<K> Step for Echo<K> {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.number = self.number.wrapping_add(1);
        self.out[0] = self.number;
        write(&self.socket, &self.out)?;
        read_all(&self.socket, &mut self.back).map_err(|error| missed(error, self.echoes))?;
        if self.back[0] != self.number {
            return Err(io::Error::other("the received message is not the echo of the last one sent"));
        }
        self.echoes += 1;
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        if self.out[..] == self.back[..] {
            Ok(())
        } else {
            Err(io::Error::other("the last echo differs from the message sent"))
        }
    }
}

#[cold]
fn missed(error: io::Error, echoes: u64) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other(format!(
            "after {echoes} echoes a message or its echo was lost: nothing was received within {} s",
            PATIENCE.as_secs()
        )),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Operation;
    use crate::primitive::kit::step::Steps;
    use crate::primitive::kit::udp_pair::udp_pair;
    use rand::SeedableRng;

    /// Returns an echo over UDP whose other side processes each datagram with `answer`.
    fn answered(answer: impl Fn(usize, &mut [u8]) -> usize + Send + 'static) -> Steps<Echo<()>> {
        let (here, there) = udp_pair().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 16];
            for turn in 0.. {
                let Ok(got) = there.recv(&mut buffer) else { return };
                let length = answer(turn, &mut buffer[..got]);
                if length > 0 && there.send(&buffer[..length]).is_err() {
                    return;
                }
            }
        });
        Steps::of(Echo::new(here.into(), 8, &mut Pcg64Mcg::seed_from_u64(1), ()).unwrap())
    }

    #[test]
    fn every_message_is_echoed_or_the_sample_ends() {
        let mut faithful = answered(|_, message| message.len());
        faithful.run(5).unwrap();
        faithful.disarm(5).unwrap();
        let mut lossy = answered(|turn, message| if turn == 3 { 0 } else { message.len() });
        let error = lossy.run(5).unwrap_err().to_string();
        assert_eq!(error, "after 3 echoes a message or its echo was lost: nothing was received within 2 s");
    }

    #[test]
    fn an_echo_of_another_message_and_an_altered_one_are_errors() {
        let mut stale = answered(|_, message| {
            message[0] = message[0].wrapping_sub(1);
            message.len()
        });
        assert!(stale.run(1).unwrap_err().to_string().contains("not the echo of the last one sent"));
        let mut altered = answered(|_, message| {
            message[7] ^= 1;
            message.len()
        });
        altered.run(1).unwrap();
        assert!(
            altered
                .disarm(1)
                .unwrap_err()
                .to_string()
                .contains("the last echo differs from the message sent")
        );
    }
}
