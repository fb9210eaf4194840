//! Entry into the kernel: calls, exceptions, signals and interrupts, and bytes that the kernel chooses.

pub(crate) mod call;
pub(crate) mod exception;
pub(crate) mod ipi;
pub(crate) mod random;
pub(crate) mod signal;
pub(crate) mod timer_interrupt;
