//! Records for tests.

use crate::{
    descriptor::Descriptor,
    record::{Abi, Call, Event, Record},
    syscall,
};

pub(crate) fn call(name: &str) -> Call {
    Call {
        number: syscall::number(name).unwrap(),
        abi: Abi::Native,
        args: [0; 6],
        result: 0,
        descriptor: Descriptor::None,
        inode: 0,
        peer: None,
        elapsed_ns: 0,
        blocked_ns: 0,
        waiting_ns: 0,
        irq_ns: 0,
        softnet_ns: 0,
        voluntary: 0,
        involuntary: 0,
        faults: 0,
        wakeups: None,
    }
}

pub(crate) fn record(event: Event) -> Record {
    Record { begin_ns: 0, process: 1, thread: 1, cpu: 0, lost_before: 0, event }
}
