//! Every benchmark: one row per family of parameters. A new one is a row here and a function in
//! `primitive`; `docs/primitives.md` must name it, which a test holds.

use assay_quantity::Unit;

use crate::benchmark::{Benchmark, Prepare};
use crate::primitive::{call, connection, cork, event, fault, file, memory, program, ring, signal, stream};

/// Benchmarks that differ in their parameters only.
struct Row {
    ids: &'static [&'static str],
    cost: Per,
    about: &'static str,
    source: &'static str,
    prepare: Prepare,
}

/// What a cost is told per.
enum Per {
    /// Operation.
    Operation,
    /// Byte, of the bytes that the id's `size` says.
    ByteOfSize,
    /// Byte, of so many per operation.
    ByteOf(u64),
}

/// All benchmarks, in the order of the table.
///
/// # Panics
/// If an id of the table is none, which a test excludes.
#[must_use]
pub fn catalogue() -> Vec<Benchmark> {
    ROWS.iter().flat_map(|row| row.ids.iter().map(|id| benchmark(row, id))).collect()
}

/// The benchmark of this name.
pub(crate) fn find(id: &str) -> Option<Benchmark> {
    ROWS.iter().find_map(|row| row.ids.iter().find(|name| **name == id).map(|name| benchmark(row, name)))
}

fn benchmark(row: &Row, id: &str) -> Benchmark {
    #[expect(clippy::expect_used, reason = "the ids are constants, and a test parses all of them")]
    let primitive: assay_quantity::PrimitiveId = id.parse().expect("an id of the table is well formed");
    let bytes = match row.cost {
        Per::Operation => None,
        Per::ByteOfSize => primitive.size().map(assay_quantity::Size::bytes),
        Per::ByteOf(bytes) => Some(bytes),
    };
    let unit = if bytes.is_some() { Unit::NanosecondsPerByte } else { Unit::Nanoseconds };
    Benchmark { primitive, unit, bytes, about: row.about, source: row.source, prepare: row.prepare }
}

const ROWS: &[Row] = &[
    Row {
        ids: &["call.null"],
        cost: Per::Operation,
        about: "getppid: into the kernel and back",
        source: "lmbench 1996, section 6.3; thesis, section 4.2 (lower bound of every call)",
        prepare: call::null,
    },
    Row {
        ids: &["null.write{size=1B}"],
        cost: Per::Operation,
        about: "write of one byte to /dev/null",
        source: "lmbench 1996, section 6.3",
        prepare: call::null_write,
    },
    Row {
        ids: &["clock.gettime"],
        cost: Per::Operation,
        about: "clock_gettime(CLOCK_MONOTONIC) through the C library and its vDSO",
        source: "own: servers ask for the time more often than for anything else",
        prepare: call::clock_gettime,
    },
    Row {
        ids: &["signal.install"],
        cost: Per::Operation,
        about: "sigaction that installs a handler",
        source: "lmbench 1996, section 6.4",
        prepare: signal::install,
    },
    Row {
        ids: &["signal.deliver"],
        cost: Per::Operation,
        about: "kill to this process, the handler, and the return from it",
        source: "lmbench 1996, section 6.4",
        prepare: signal::deliver,
    },
    Row {
        ids: &["file.open_close"],
        cost: Per::Operation,
        about: "open of an existing file and close",
        source: "hbench-OS lat_syscall; thesis, section 4.2",
        prepare: file::open_close,
    },
    Row {
        ids: &["file.open_missing"],
        cost: Per::Operation,
        about: "open that fails because there is no such file",
        source: "own: library and configuration search paths consist of these",
        prepare: file::open_missing,
    },
    Row {
        ids: &["file.stat"],
        cost: Per::Operation,
        about: "stat of a path",
        source: "hbench-OS lat_syscall; thesis, section 4.2",
        prepare: file::stat,
    },
    Row {
        ids: &["file.fstat"],
        cost: Per::Operation,
        about: "fstat of an open file",
        source: "hbench-OS lat_syscall",
        prepare: file::fstat,
    },
    Row {
        ids: &["process.fork_exit"],
        cost: Per::Operation,
        about: "fork, exit of the child, wait",
        source: "lmbench 1996, section 6.5; thesis, section 2.3",
        prepare: program::fork_exit,
    },
    Row {
        ids: &["process.exec{link=static}", "process.exec{link=dynamic}"],
        cost: Per::Operation,
        about: "fork, exec and run of a program that only ends, wait; static: one page without start-up \
                code; dynamic: /bin/true",
        source: "lmbench 1996, section 6.5; thesis, section 2.2.3",
        prepare: program::exec,
    },
    Row {
        ids: &["process.shell"],
        cost: Per::Operation,
        about: "fork, /bin/sh -c /bin/true, wait",
        source: "lmbench 1996, section 6.5",
        prepare: program::shell,
    },
    Row {
        ids: &["pipe.round_trip{size=1B,cpus=same}", "pipe.round_trip{size=1B,cpus=different}"],
        cost: Per::Operation,
        about: "one byte to another process and one back, through two pipes",
        source: "lmbench 1996, section 6.7",
        prepare: ring::pipes,
    },
    Row {
        ids: &["process.context_switch{processes=2,cpus=same}"],
        cost: Per::Operation,
        about: "one switch between two processes: a token's pass between them less its pass within one",
        source: "lmbench 1996, section 6.6; thesis, section 2.2.4",
        prepare: ring::context_switch,
    },
    Row {
        ids: &["unix.round_trip{size=1B,cpus=same}", "unix.round_trip{size=1B,cpus=different}"],
        cost: Per::Operation,
        about: "one byte to another process and one back, through Unix stream sockets",
        source: "lmbench 3, lat_unix",
        prepare: ring::unix,
    },
    Row {
        ids: &["tcp.round_trip{size=1B,cpus=same}", "tcp.round_trip{size=1B,cpus=different}"],
        cost: Per::Operation,
        about: "one byte to another process and one back, through TCP over loopback",
        source: "lmbench 1996, section 6.7",
        prepare: ring::tcp,
    },
    Row {
        ids: &["tcp.connect"],
        cost: Per::Operation,
        about: "socket and connect over loopback until established",
        source: "lmbench 1996, section 6.7; thesis, section 4.2",
        prepare: connection::connect,
    },
    Row {
        ids: &["tcp.accept"],
        cost: Per::Operation,
        about: "accept4 of a connection that is ready",
        source: "thesis, section 4.2 (servers)",
        prepare: connection::accept,
    },
    Row {
        ids: &["tcp.close"],
        cost: Per::Operation,
        about: "close of an established connection on which nothing is under way",
        source: "thesis, section 4.2 (servers)",
        prepare: connection::close,
    },
    Row {
        ids: &[
            "tcp.send{size=64B,buffer=reused}",
            "tcp.send{size=4KiB,buffer=reused}",
            "tcp.send{size=32KiB,buffer=reused}",
            "tcp.send{size=64KiB,buffer=reused}",
            "tcp.send{size=64B,buffer=fresh}",
            "tcp.send{size=4KiB,buffer=fresh}",
            "tcp.send{size=32KiB,buffer=fresh}",
            "tcp.send{size=64KiB,buffer=fresh}",
        ],
        cost: Per::ByteOfSize,
        about: "write to a TCP socket over loopback, with the segments' way into the peer's queue",
        source: "thesis, sections 2.2.3 and 4.2",
        prepare: stream::send,
    },
    Row {
        ids: &[
            "tcp.receive{size=64B,buffer=reused}",
            "tcp.receive{size=4KiB,buffer=reused}",
            "tcp.receive{size=32KiB,buffer=reused}",
            "tcp.receive{size=64KiB,buffer=reused}",
            "tcp.receive{size=64B,buffer=fresh}",
            "tcp.receive{size=4KiB,buffer=fresh}",
            "tcp.receive{size=32KiB,buffer=fresh}",
            "tcp.receive{size=64KiB,buffer=fresh}",
        ],
        cost: Per::ByteOfSize,
        about: "read from a TCP socket of bytes that are already in its queue",
        source: "thesis, sections 2.2.3 and 4.2",
        prepare: stream::receive,
    },
    Row {
        ids: &[
            "tcp.transfer{size=4KiB,buffer=reused}",
            "tcp.transfer{size=32KiB,buffer=reused}",
            "tcp.transfer{size=64KiB,buffer=reused}",
            "tcp.transfer{size=4KiB,buffer=fresh}",
            "tcp.transfer{size=32KiB,buffer=fresh}",
            "tcp.transfer{size=64KiB,buffer=fresh}",
        ],
        cost: Per::ByteOfSize,
        about: "write to a TCP socket over loopback and read at the other end, within one process",
        source: "lmbench 1996, section 5.2; thesis, section 2.2.3",
        prepare: stream::transfer,
    },
    Row {
        ids: &["tcp.writev{size=4KiB}", "tcp.writev{size=32KiB}", "tcp.writev{size=64KiB}"],
        cost: Per::ByteOfSize,
        about: "writev to a TCP socket of a 256-byte header and a body, size bytes together",
        source: "own: how servers send a response",
        prepare: stream::writev,
    },
    Row {
        ids: &["tcp.sendfile{size=4KiB}", "tcp.sendfile{size=32KiB}", "tcp.sendfile{size=64KiB}"],
        cost: Per::ByteOfSize,
        about: "sendfile from a cached file to a TCP socket",
        source: "own: how servers send a file",
        prepare: stream::sendfile,
    },
    Row {
        ids: &["tcp.writev_corked{size=256B}", "tcp.writev_corked{size=4KiB}"],
        cost: Per::ByteOfSize,
        about: "writev of the first piece into a corked TCP socket: buffered, nothing is sent",
        source: "own: how servers begin a response that ends with a file",
        prepare: cork::writev,
    },
    Row {
        ids: &["tcp.sendfile_corked{size=4KiB}", "tcp.sendfile_corked{size=32KiB}"],
        cost: Per::ByteOfSize,
        about: "sendfile from a cached file into a corked TCP socket that holds a header: buffered, nothing \
                is sent",
        source: "own: how servers add a file to a response",
        prepare: cork::sendfile,
    },
    Row {
        ids: &["tcp.uncork{size=4KiB}", "tcp.uncork{size=32KiB}"],
        cost: Per::ByteOfSize,
        about: "TCP_CORK off with size bytes held back: their way over loopback into the peer's queue, where \
                nobody sleeps",
        source: "own: how servers end a response that they have held back",
        prepare: cork::uncork,
    },
    Row {
        ids: &[
            "file.read{size=64B,buffer=reused}",
            "file.read{size=4KiB,buffer=reused}",
            "file.read{size=32KiB,buffer=reused}",
            "file.read{size=64KiB,buffer=reused}",
            "file.read{size=4KiB,buffer=fresh}",
            "file.read{size=32KiB,buffer=fresh}",
            "file.read{size=64KiB,buffer=fresh}",
        ],
        cost: Per::ByteOfSize,
        about: "pread of the next part of a cached file of 8 MiB",
        source: "lmbench 1996, section 5.3; thesis, section 2.2.3",
        prepare: file::read,
    },
    Row {
        ids: &[
            "file.write{size=64B,buffer=reused}",
            "file.write{size=4KiB,buffer=reused}",
            "file.write{size=32KiB,buffer=reused}",
            "file.write{size=64KiB,buffer=reused}",
            "file.write{size=4KiB,buffer=fresh}",
            "file.write{size=32KiB,buffer=fresh}",
            "file.write{size=64KiB,buffer=fresh}",
        ],
        cost: Per::ByteOfSize,
        about: "pwrite over the next part of a cached file of 8 MiB",
        source: "thesis, section 4.2",
        prepare: file::write,
    },
    Row {
        ids: &["mmap.reread{size=1MiB}"],
        cost: Per::ByteOfSize,
        about: "map the next part of a cached file, add up every word, unmap",
        source: "lmbench 1996, section 5.3; thesis, section 2.2.5",
        prepare: file::map_reread,
    },
    Row {
        ids: &["page_fault.anonymous"],
        cost: Per::Operation,
        about: "first write to a page of anonymous memory, without huge pages",
        source: "lmbench 3, lat_pagefault, with the faults counted",
        prepare: fault::anonymous,
    },
    Row {
        ids: &[
            "memory.read{level=l1}",
            "memory.read{level=l2}",
            "memory.read{level=l3}",
            "memory.read{level=dram}",
        ],
        cost: Per::ByteOf(memory::BYTES_PER_OPERATION),
        about: "load of every word of the working set, in order",
        source: "thesis, section 2.2.5",
        prepare: memory::read,
    },
    Row {
        ids: &[
            "memory.write{level=l1}",
            "memory.write{level=l2}",
            "memory.write{level=l3}",
            "memory.write{level=dram}",
        ],
        cost: Per::ByteOf(memory::BYTES_PER_OPERATION),
        about: "store to every word of the working set, in order",
        source: "thesis, section 2.2.5",
        prepare: memory::write,
    },
    Row {
        ids: &[
            "memory.copy{level=l1}",
            "memory.copy{level=l2}",
            "memory.copy{level=l3}",
            "memory.copy{level=dram}",
        ],
        cost: Per::ByteOf(memory::BYTES_PER_OPERATION),
        about: "load and store of every word from one half of the working set to the other, in order",
        source: "thesis, section 2.2.5",
        prepare: memory::copy,
    },
    Row {
        ids: &[
            "memory.load{level=l1}",
            "memory.load{level=l2}",
            "memory.load{level=l3}",
            "memory.load{level=dram}",
        ],
        cost: Per::Operation,
        about: "load whose address is the result of the load before it, lines in random order",
        source: "lmbench 1996, section 6.2, in random order",
        prepare: memory::load,
    },
    Row {
        ids: &["epoll.wait_ready"],
        cost: Per::Operation,
        about: "epoll_wait that finds its one descriptor ready",
        source: "own: event loops",
        prepare: event::wait_ready,
    },
    Row {
        ids: &["epoll.ctl"],
        cost: Per::Operation,
        about: "epoll_ctl, half of them ADD and half of them DEL of a TCP socket",
        source: "own: event loops",
        prepare: event::control,
    },
    Row {
        ids: &["socket.setsockopt"],
        cost: Per::Operation,
        about: "setsockopt(TCP_NODELAY) on an established connection",
        source: "own: what servers set on every connection",
        prepare: event::set_socket_option,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_is_well_formed_unique_and_explained() {
        let names: Vec<&str> = ROWS.iter().flat_map(|row| row.ids).copied().collect();
        for name in &names {
            let benchmark = find(name).unwrap();
            assert_eq!(benchmark.primitive.to_string(), *name, "written as it reads back");
            assert!(!benchmark.about.is_empty() && !benchmark.source.is_empty(), "{name}");
            assert_eq!(benchmark.bytes.is_some(), benchmark.unit == Unit::NanosecondsPerByte, "{name}");
        }
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert_eq!(catalogue().len(), names.len());
    }

    #[test]
    fn a_row_that_costs_per_byte_of_its_size_has_a_size() {
        for row in ROWS.iter().filter(|row| matches!(row.cost, Per::ByteOfSize)) {
            assert!(row.ids.iter().all(|id| find(id).unwrap().bytes.is_some()), "{:?}", row.ids);
        }
    }

    #[test]
    fn the_documentation_names_every_primitive() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/primitives.md");
        let text = std::fs::read_to_string(path).unwrap();
        let missing: Vec<String> = catalogue()
            .iter()
            .map(|benchmark| benchmark.primitive.to_string())
            .filter(|id| !text.contains(&format!("`{id}`")))
            .collect();
        assert!(missing.is_empty(), "docs/primitives.md does not name {missing:?}");
    }
}
