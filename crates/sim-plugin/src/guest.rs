//! Reads registers and memory of the guest, and makes events of them. What cannot be read is `None`, which
//! the caller counts.

use std::ffi::{CStr, c_void};
use std::ptr;

use assay_sim::{Event, Kind, Name, Task, TaskOffsets};

use crate::ffi;

/// Registers that are read.
#[derive(Debug, Clone, Copy)]
enum Register {
    Rax,
    Rdi,
    Rsi,
    Rsp,
    Rdx,
}

/// Their names, in the same order.
const NAMES: [&CStr; 5] = [c"rax", c"rdi", c"rsi", c"rsp", c"rdx"];

/// Bits of a page fault's error code: an instruction was fetched; a program was running (Intel SDM volume 3A,
/// figure 4-12).
const FETCH: u64 = 1 << 4;
const USER: u64 = 1 << 2;

/// What a page fault has aborted.
#[derive(Debug, Clone, Copy)]
pub enum Aborted {
    /// The fetch of an instruction, which was not executed.
    Nothing,
    /// An instruction of a program.
    User,
    /// An instruction of the kernel.
    Kernel,
}

/// Access to the guest's state.
#[derive(Debug)]
pub struct Guest {
    offsets: TaskOffsets,
    registers: [*mut c_void; NAMES.len()],
    /// Into which QEMU writes what is read.
    bytes: *mut ffi::Bytes,
}

impl Guest {
    /// The registers are found later, when there is a processor.
    pub fn new(offsets: TaskOffsets) -> Guest {
        // SAFETY: it has no conditions.
        let bytes = unsafe { ffi::g_byte_array_new() };
        Guest { offsets, registers: [ptr::null_mut(); NAMES.len()], bytes }
    }

    /// Finds the registers of the processor whose thread calls it.
    ///
    /// # Panics
    /// If one is missing: its handle cannot be recognised, because 0 is a valid one.
    pub fn find_registers(&mut self) {
        // SAFETY: QEMU returns an array of descriptions, whose names are valid strings.
        unsafe {
            let described = &*ffi::qemu_plugin_get_registers();
            let described = std::slice::from_raw_parts(described.data, described.length as usize);
            self.registers = NAMES.map(|name| {
                let register = described.iter().find(|register| name == CStr::from_ptr(register.name));
                register.unwrap_or_else(|| panic!("QEMU has no register {name:?}")).handle
            });
        }
    }

    /// A system call begins.
    pub fn call(&mut self) -> Event {
        // The kernel takes the lower half as the number.
        let number = lower_half(self.register(Register::Rax));
        Event::Call(u16::try_from(number).unwrap_or(u16::MAX))
    }

    /// A program asks for a snapshot.
    pub fn snapshot(&mut self) -> Event {
        Event::Snapshot(self.register(Register::Rdi))
    }

    /// A trap begins, with this number of bytes above the saved address.
    pub fn trap(&mut self, service: u16, above: u8) -> Event {
        Event::Trap { service, frame: self.register(Register::Rsp) + u64::from(above) }
    }

    /// What the page fault that begins has aborted.
    pub fn aborted(&mut self) -> Option<Aborted> {
        let error = self.register(Register::Rsp);
        let error = u64::from_le_bytes(self.memory(error)?);
        Some(match (error & FETCH, error & USER) {
            (0, 0) => Aborted::Kernel,
            (0, _) => Aborted::User,
            _ => Aborted::Nothing,
        })
    }

    /// A function is called: the caller's address is on the top of the stack.
    pub fn function(&mut self, service: u16) -> Event {
        Event::Function { service, frame: self.register(Register::Rsp) }
    }

    /// A function returns to the address on the top of the stack.
    pub fn return_from_function(&mut self) -> Event {
        Event::Return { frame: self.register(Register::Rsp) }
    }

    /// A trap ends: `iretq` takes the address and then the code segment from the stack.
    pub fn return_from_trap(&mut self) -> Option<Event> {
        let frame = self.register(Register::Rsp);
        let segment = u64::from_le_bytes(self.memory(frame + 8)?);
        // Its lowest bits are the privilege level, 3 for programs.
        Some(if segment & 3 == 3 { Event::ReturnToProgram } else { Event::ReturnToKernel { frame } })
    }

    /// The kernel has made a task.
    pub fn new_task(&mut self) -> Option<Event> {
        self.task(Register::Rdi).map(Event::New)
    }

    /// The kernel switches to a task.
    pub fn switch(&mut self) -> Option<Event> {
        let from = self.register(Register::Rdi);
        Some(Event::Switch { state: self.state(from)?, to: self.task(Register::Rsi)? })
    }

    /// The kernel wakes a task up.
    pub fn wake(&mut self) -> Option<Event> {
        let (task, of) = (self.register(Register::Rdi), lower_half(self.register(Register::Rsi)));
        Some(Event::Wake { task, state: self.state(task)?, of })
    }

    /// The clock was read, into `edx` and `eax`.
    pub fn clock(&mut self) -> Event {
        let [upper, lower] =
            [Register::Rdx, Register::Rax].map(|register| lower_half(self.register(register)));
        Event::Clock { time_ns: u64::from(upper) << 32 | u64::from(lower) }
    }

    /// Why the task at this address does not run.
    fn state(&mut self, task: u64) -> Option<u32> {
        self.memory(task + self.offsets.state).map(u32::from_le_bytes)
    }

    /// The task whose address is in this register.
    fn task(&mut self, register: Register) -> Option<Task> {
        let (address, offsets) = (self.register(register), self.offsets);
        let process = u32::from_le_bytes(self.memory(address + offsets.process)?);
        let memory = u64::from_le_bytes(self.memory(address + offsets.memory)?);
        let name: Name = self.memory(address + offsets.name)?;
        let kind = if memory == 0 { Kind::Kernel } else { Kind::Program };
        Some(Task { address, process, name, kind })
    }

    /// The kernel renames a task.
    pub fn rename(&mut self) -> Option<Event> {
        let (task, name) = (self.register(Register::Rdi), self.register(Register::Rsi));
        // The name ends with its first zero, after which anything may follow.
        let mut name: Name = self.memory(name)?;
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len() - 1);
        name[length..].fill(0);
        Some(Event::Rename { task, name })
    }

    fn register(&mut self, register: Register) -> u64 {
        // SAFETY: the handle is QEMU's own, and the array is ours; QEMU appends to it.
        let read = unsafe {
            ffi::g_byte_array_set_size(self.bytes, 0);
            ffi::qemu_plugin_read_register(self.registers[register as usize], self.bytes)
        };
        assert_eq!(read, 8, "QEMU cannot read {register:?}");
        u64::from_le_bytes(self.read().expect("QEMU has read 8 bytes"))
    }

    /// Reads memory at a virtual address. `None` if there is none.
    fn memory<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        // SAFETY: the array is ours; QEMU sets its size.
        unsafe { ffi::qemu_plugin_read_memory_vaddr(address, self.bytes, N) }.then(|| self.read())?
    }

    /// What QEMU has written last.
    fn read<const N: usize>(&self) -> Option<[u8; N]> {
        // SAFETY: GLib's array is valid until it is changed.
        let bytes = unsafe { std::slice::from_raw_parts((*self.bytes).data, (*self.bytes).length as usize) };
        bytes.try_into().ok()
    }
}

/// The lower half of a register.
fn lower_half(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}
