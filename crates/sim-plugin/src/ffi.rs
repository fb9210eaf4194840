//! The part of QEMU's plugin interface, version 4, that is used here (docs/devel/tcg-plugins.rst of QEMU's
//! source), and two functions of GLib, which QEMU contains. QEMU provides all of them when it loads the
//! plugin.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Version of the interface.
pub const VERSION: c_int = 4;

/// What QEMU says of itself.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    /// Name of the emulated architecture.
    pub target: *const c_char,
    /// Oldest and newest version of the interface that it supports.
    pub oldest: c_int,
    /// The newest one.
    pub newest: c_int,
    /// Whether it emulates a whole machine.
    pub is_system: bool,
    /// Number of its processors at the start.
    pub processors: c_int,
    /// And at most.
    pub processors_max: c_int,
}

/// A byte array of GLib.
#[repr(C)]
#[derive(Debug)]
pub struct Bytes {
    /// Its content.
    pub data: *mut u8,
    /// Its length in bytes.
    pub length: c_uint,
}

/// An array of GLib, of [`Register`]s.
#[repr(C)]
#[derive(Debug)]
pub struct Registers {
    /// Its elements.
    pub data: *const Register,
    /// Their number.
    pub length: c_uint,
}

/// A register of the emulated processor.
#[repr(C)]
#[derive(Debug)]
pub struct Register {
    /// What identifies it to [`qemu_plugin_read_register`].
    pub handle: *mut c_void,
    /// Its name.
    pub name: *const c_char,
    /// The group that it belongs to.
    pub feature: *const c_char,
}

/// A number for each processor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// Where the numbers are.
    pub scoreboard: *mut c_void,
    /// Offset in an element of the scoreboard.
    pub offset: usize,
}

/// `QEMU_PLUGIN_CB_NO_REGS`: a callback reads neither registers nor memory.
pub const READS_NOTHING: c_int = 0;

/// `QEMU_PLUGIN_CB_R_REGS`: a callback reads registers and memory.
pub const READS_REGISTERS: c_int = 1;

/// `QEMU_PLUGIN_INLINE_ADD_U64`.
pub const ADD: c_int = 0;

/// `QEMU_PLUGIN_COND_NE`: a counter is not equal to a value.
pub const NOT_EQUAL: c_int = 3;

/// Called with the processor and the data given at registration.
pub type OnInstruction = unsafe extern "C" fn(c_uint, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: u64, callback: unsafe extern "C" fn(u64, c_uint));
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, callback: unsafe extern "C" fn(u64, *mut c_void));
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut c_void,
        callback: OnInstruction,
        flags: c_int,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_cond_cb(
        instruction: *mut c_void,
        callback: OnInstruction,
        flags: c_int,
        condition: c_int,
        counter: Counter,
        value: u64,
        data: *mut c_void,
    );
    pub fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        instruction: *mut c_void,
        operation: c_int,
        counter: Counter,
        value: u64,
    );
    pub fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    pub fn qemu_plugin_insn_data(instruction: *const c_void, to: *mut c_void, length: usize) -> usize;
    pub fn qemu_plugin_insn_vaddr(instruction: *const c_void) -> u64;
    pub fn qemu_plugin_get_registers() -> *mut Registers;
    pub fn qemu_plugin_read_register(handle: *mut c_void, to: *mut Bytes) -> c_int;
    pub fn qemu_plugin_read_memory_vaddr(address: u64, to: *mut Bytes, length: usize) -> bool;
    pub fn qemu_plugin_scoreboard_new(element: usize) -> *mut c_void;
    pub fn qemu_plugin_scoreboard_find(scoreboard: *mut c_void, processor: c_uint) -> *mut c_void;
    pub fn g_byte_array_new() -> *mut Bytes;
    pub fn g_byte_array_set_size(array: *mut Bytes, length: c_uint) -> *mut Bytes;
}
