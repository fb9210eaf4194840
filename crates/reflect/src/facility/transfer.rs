//! Bytes and packets that are transferred to and from devices.

use std::io;
use std::path::Path;

use assay_process::Reread;
use assay_quantity::Unit;

use super::{Measure, Provider, Source, Subject, number_after, opened};

pub static STORAGE: Provider = Provider {
    measures: &[Measure::productivity(
        "storage bytes",
        Unit::Bytes,
        "bytes that storage devices transferred, both ways",
    )],
    open: |subject| {
        let (path, parse): (_, fn(&str) -> Option<u64>) = match subject {
            Subject::Machine => ("/proc/vmstat".into(), of_machine),
            Subject::Process(pid) => (format!("/proc/{pid}/io").into(), of_process),
            Subject::Group(group) => (group.path().join("io.stat"), of_group),
        };
        let file = opened(&path).map_err(|reason| match subject {
            Subject::Group(_) => format!("{reason}; enable the controller io for this group"),
            _ => reason,
        })?;
        Ok(Box::new(Storage { file, parse }))
    },
};

#[derive(Debug)]
struct Storage {
    file: Reread,
    parse: fn(&str) -> Option<u64>,
}

impl Source for Storage {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        totals.push((self.parse)(self.file.text()?));
        Ok(())
    }
}

/// Sums the KiB of `/proc/vmstat`.
fn of_machine(text: &str) -> Option<u64> {
    Some((number_after(text, "pgpgin ")? + number_after(text, "pgpgout ")?) * 1024)
}

/// Sums the bytes of `/proc/PID/io`.
fn of_process(text: &str) -> Option<u64> {
    Some(number_after(text, "read_bytes: ")? + number_after(text, "write_bytes: ")?)
}

/// Sums the bytes of all devices in `io.stat`; there is no line before the first transfer.
fn of_group(text: &str) -> Option<u64> {
    let bytes = |word: &str| -> Option<u64> {
        let (key, number) = word.split_once('=')?;
        if matches!(key, "rbytes" | "wbytes") { number.parse().ok() } else { None }
    };
    Some(text.split_ascii_whitespace().filter_map(bytes).sum())
}

/// Of a network namespace: loopback is a device, too.
pub static NETWORK: Provider = Provider {
    measures: &[
        Measure::productivity(
            "network bytes",
            Unit::Bytes,
            "bytes that network devices received and sent, loopback included",
        ),
        Measure::productivity(
            "network packets",
            Unit::Count,
            "packets that network devices received and sent, loopback included",
        ),
    ],
    open: |subject| {
        let path = match subject {
            Subject::Machine => "/proc/net/dev".to_owned(),
            Subject::Process(pid) => format!("/proc/{pid}/net/dev"),
            Subject::Group(_) => {
                return Err(
                    "the kernel counts packets by network namespace; give -p, a process in it".to_owned()
                );
            }
        };
        Ok(Box::new(Network(opened(Path::new(&path))?)))
    },
};

#[derive(Debug)]
struct Network(Reread);

impl Source for Network {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        let (bytes, packets) = devices(self.0.text()?);
        totals.extend([Some(bytes), Some(packets)]);
        Ok(())
    }
}

/// Sums the bytes and packets of all devices, received and sent (proc_pid_net(5)).
fn devices(text: &str) -> (u64, u64) {
    let counts = text.lines().filter_map(|line| {
        let numbers: Vec<u64> =
            line.split_once(':')?.1.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
        Some((numbers.first()? + numbers.get(8)?, numbers.get(1)? + numbers.get(9)?))
    });
    counts.fold((0, 0), |(bytes, packets), (b, p)| (bytes + b, packets + p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_where_the_kernel_puts_them() {
        assert_eq!(of_machine("nr_x 1\npgpgin 10\npgpgout 20\npgpgoutx 7\n"), Some(30 * 1024));
        assert_eq!(of_machine("pgpgin 10\n"), None);
        assert_eq!(of_process("rchar: 5\nread_bytes: 4096\nwrite_bytes: 1\n"), Some(4097));
        assert_eq!(of_group("8:0 rbytes=1 wbytes=20 rios=7\n8:16 rbytes=300 wbytes=0\n"), Some(321));
        assert_eq!(of_group(""), Some(0));
    }

    #[test]
    fn devices_are_added_up_in_both_directions() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n\
                    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n eth0:200 2 0 0 0 0 0 0 3000 3 0 0 0 0 0 0\n";
        assert_eq!(devices(text), (3220, 7));
    }
}
