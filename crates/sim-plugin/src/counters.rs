//! What QEMU's translated code counts and reads: a scoreboard of QEMU, with an element for each processor.

use std::ffi::{c_uint, c_void};
use std::mem::offset_of;
use std::slice;

use crate::ffi;

/// The first part of an element.
#[repr(C)]
#[derive(Debug)]
pub struct Counted {
    /// Instructions executed at addresses of programs.
    pub user: u64,
    /// And of the kernel.
    pub kernel: u64,
    /// 1 while a function is running that is a service.
    pub in_function: u64,
    /// 1 from a halt until the clock has been read.
    pub halted: u64,
}

/// A number of an element, for translated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// [`Counted::user`].
    User,
    /// [`Counted::kernel`].
    Kernel,
    /// [`Counted::in_function`].
    InFunction,
    /// [`Counted::halted`].
    Halted,
    /// The instructions of the routine at this position.
    Routine(usize),
}

/// The scoreboard. An element is a [`Counted`], and after it the instructions executed in each routine of the
/// kernel.
#[derive(Debug)]
pub struct Counters {
    scoreboard: *mut c_void,
    routines: usize,
}

impl Counters {
    /// Makes a scoreboard of zeros, for this number of routines.
    pub fn new(routines: usize) -> Counters {
        let element = size_of::<Counted>() + routines * size_of::<u64>();
        // SAFETY: it has no conditions.
        let scoreboard = unsafe { ffi::qemu_plugin_scoreboard_new(element) };
        Counters { scoreboard, routines }
    }

    /// Where translated code finds a number.
    pub fn counter(&self, number: Number) -> ffi::Counter {
        let offset = match number {
            Number::User => offset_of!(Counted, user),
            Number::Kernel => offset_of!(Counted, kernel),
            Number::InFunction => offset_of!(Counted, in_function),
            Number::Halted => offset_of!(Counted, halted),
            Number::Routine(position) => {
                assert!(position < self.routines, "there are only {} routines", self.routines);
                size_of::<Counted>() + position * size_of::<u64>()
            }
        };
        ffi::Counter { scoreboard: self.scoreboard, offset }
    }

    /// The first part of a processor's element.
    pub fn counted(&mut self, processor: c_uint) -> &mut Counted {
        // SAFETY: an element begins with it; QEMU has set its memory to 0 and aligned it for numbers of 64
        // bits. It stays where it is during a callback: the thread that calls back emulates all processors.
        unsafe { &mut *self.element(processor) }
    }

    /// The instructions that a processor has executed in each routine.
    pub fn routines(&mut self, processor: c_uint) -> &mut [u64] {
        // SAFETY: as above; they follow the first part.
        unsafe { slice::from_raw_parts_mut(self.element(processor).add(1).cast(), self.routines) }
    }

    fn element(&mut self, processor: c_uint) -> *mut Counted {
        // SAFETY: QEMU has made the scoreboard, and calls back only for processors that exist.
        unsafe { ffi::qemu_plugin_scoreboard_find(self.scoreboard, processor).cast() }
    }
}
