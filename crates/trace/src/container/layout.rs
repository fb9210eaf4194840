//! The 176 bytes of one record as written by the probe and stored in a spool.
//!
//! The probe's `record.h` defines the layout; this module decodes it by offset, little endian. A test of the
//! probe's crate compares the two. Invalid bytes (an unknown kind) are rejected, never interpreted.
//!
//! A record of version 1 is the first 144 bytes: the fields after them are 0.

use crate::{
    descriptor::Descriptor,
    record::{Abi, Area, Call, Content, Event, ExecPath, Memory, Peer, Record, Wakeups},
};

/// Bytes of one record.
pub const RECORD_BYTES: usize = 176;
/// Bytes of a path or a socket address that one record has, in place of the arguments.
pub const CONTENT_PIECE: usize = 48;
/// Bytes of a record of version 1.
pub(crate) const RECORD_BYTES_1: usize = 144;

/// Offsets of the fields, for the test that compares them with the header.
pub const OFFSETS: [(&str, usize); 26] = [
    ("begin_ns", 0),
    ("elapsed_ns", 8),
    ("blocked_ns", 16),
    ("waiting_ns", 24),
    ("irq_ns", 32),
    ("softnet_ns", 40),
    ("args", 48),
    ("result", 96),
    ("inode", 104),
    ("process", 112),
    ("thread", 116),
    ("lost", 120),
    ("voluntary", 124),
    ("involuntary", 128),
    ("faults", 132),
    ("number", 136),
    ("kind", 138),
    ("descriptor", 139),
    ("cpu", 140),
    ("flags", 142),
    ("idle_ns", 144),
    ("woken_idle_ns", 152),
    ("idle_sleeps", 160),
    ("woken_same", 164),
    ("woken_busy", 168),
    ("woken_idle", 172),
];

pub(crate) const KIND_CALL: u8 = 1;
pub(crate) const KIND_UNFINISHED: u8 = 2;
pub(crate) const KIND_PAGE_FAULT: u8 = 3;
pub(crate) const KIND_OFF_CPU: u8 = 4;
pub(crate) const KIND_FORK: u8 = 5;
pub(crate) const KIND_EXEC: u8 = 6;
pub(crate) const KIND_EXIT: u8 = 7;
/// A counter mark: written by the recorder, not by the probe.
pub(crate) const KIND_MARK: u8 = 8;
pub(crate) const KIND_CONTENT: u8 = 9;

const FLAG_COMPAT: u16 = 1;
const FLAG_USER_FAULT: u16 = 2;
const FLAG_WHOLE_PROCESS: u16 = 8;
const FLAG_WAKEUPS: u16 = 32;
const FLAG_PEER_SAME_CPU: u16 = 64;
const FLAG_PEER_OTHER_CPU: u16 = 128;
const FLAG_CUT: u16 = 256;

/// A record as stored: every field, without interpretation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stored {
    pub begin_ns: u64,
    pub elapsed_ns: u64,
    pub blocked_ns: u64,
    pub waiting_ns: u64,
    pub irq_ns: u64,
    pub softnet_ns: u64,
    pub args: [u64; 6],
    pub result: i64,
    pub inode: u64,
    pub process: u32,
    pub thread: u32,
    pub lost: u32,
    pub voluntary: u32,
    pub involuntary: u32,
    pub faults: u32,
    pub number: u16,
    pub kind: u8,
    pub descriptor: u8,
    pub cpu: u16,
    pub flags: u16,
    pub idle_ns: u64,
    pub woken_idle_ns: u64,
    pub idle_sleeps: u32,
    pub woken_same: u32,
    pub woken_busy: u32,
    pub woken_idle: u32,
}

/// The interpretation of a stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    Record(Record),
    Mark(Mark),
    Piece(Piece),
}

/// A part of the content of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its call.
    pub call: Key,
    /// Position of the argument.
    pub argument: u8,
    /// True if the memory contains more than the content.
    pub is_cut: bool,
    /// Bytes of the content from the beginning of this piece to its end.
    pub left: usize,
    /// The bytes of this piece, of which the first `left` are of the content.
    pub bytes: [u8; CONTENT_PIECE],
    /// Records lost before it.
    pub lost: u32,
}

/// Identifies a call on its CPU: contents whose call was lost are not those of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub end_ns: u64,
    pub thread: u32,
    pub number: u16,
}

/// The loss counter of a CPU at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub time_ns: u64,
    pub cpu: u16,
    pub lost_so_far: u64,
}

impl Stored {
    pub fn mark(mark: Mark) -> Self {
        Self {
            begin_ns: mark.time_ns,
            cpu: mark.cpu,
            kind: KIND_MARK,
            args: [mark.lost_so_far, 0, 0, 0, 0, 0],
            ..Self::default()
        }
    }

    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let long = |at: usize| u64::from_le_bytes(array(bytes, at));
        let word = |at: usize| u32::from_le_bytes(array(bytes, at));
        let short = |at: usize| u16::from_le_bytes(array(bytes, at));
        Self {
            begin_ns: long(0),
            elapsed_ns: long(8),
            blocked_ns: long(16),
            waiting_ns: long(24),
            irq_ns: long(32),
            softnet_ns: long(40),
            args: [long(48), long(56), long(64), long(72), long(80), long(88)],
            result: long(96).cast_signed(),
            inode: long(104),
            process: word(112),
            thread: word(116),
            lost: word(120),
            voluntary: word(124),
            involuntary: word(128),
            faults: word(132),
            number: short(136),
            kind: bytes[138],
            descriptor: bytes[139],
            cpu: short(140),
            flags: short(142),
            idle_ns: long(144),
            woken_idle_ns: long(152),
            idle_sleeps: word(160),
            woken_same: word(164),
            woken_busy: word(168),
            woken_idle: word(172),
        }
    }

    pub fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let longs =
            [self.begin_ns, self.elapsed_ns, self.blocked_ns, self.waiting_ns, self.irq_ns, self.softnet_ns];
        for (position, long) in longs.iter().chain(&self.args).enumerate() {
            put(position * 8, &long.to_le_bytes());
        }
        put(96, &self.result.to_le_bytes());
        put(104, &self.inode.to_le_bytes());
        let words = [self.process, self.thread, self.lost, self.voluntary, self.involuntary, self.faults];
        for (position, word) in words.iter().enumerate() {
            put(112 + position * 4, &word.to_le_bytes());
        }
        put(136, &self.number.to_le_bytes());
        put(138, &[self.kind, self.descriptor]);
        put(140, &self.cpu.to_le_bytes());
        put(142, &self.flags.to_le_bytes());
        put(144, &self.idle_ns.to_le_bytes());
        put(152, &self.woken_idle_ns.to_le_bytes());
        let words = [self.idle_sleeps, self.woken_same, self.woken_busy, self.woken_idle];
        for (position, word) in words.iter().enumerate() {
            put(160 + position * 4, &word.to_le_bytes());
        }
        bytes
    }

    /// Returns the record as one of version 1: neither its wake-ups nor the CPU of its peer were recorded,
    /// whatever its flags claim.
    pub fn of_version_1(self) -> Self {
        Self { flags: self.flags & !(FLAG_WAKEUPS | FLAG_PEER_SAME_CPU | FLAG_PEER_OTHER_CPU), ..self }
    }

    /// Returns the end of the event. The records of a CPU are sorted by it.
    pub fn end_ns(&self) -> u64 {
        self.begin_ns.saturating_add(self.elapsed_ns)
    }

    /// Interprets the record; `None` if the number of its kind, its descriptor, its area or its memory is
    /// unknown, if its flags contradict each other, or if its content has an impossible place or length.
    pub fn meaning(&self) -> Option<Meaning> {
        let event = match self.kind {
            KIND_CALL => Event::Call(self.call()?),
            KIND_UNFINISHED => Event::Unfinished(self.call()?),
            KIND_PAGE_FAULT => Event::PageFault {
                address: self.args[0],
                error: self.args[1],
                user: self.flags & FLAG_USER_FAULT != 0,
                area: match self.args[2] {
                    0 => None,
                    1 => Some(Area::Nothing),
                    2 => Some(Area::Anonymous),
                    3 => Some(Area::PrivateFile),
                    4 => Some(Area::Shared),
                    _ => return None,
                },
            },
            KIND_OFF_CPU => Event::OffCpu { blocked_ns: self.blocked_ns, waiting_ns: self.waiting_ns },
            KIND_FORK => Event::Fork {
                child_process: u32::try_from(self.args[0]).ok()?,
                child_thread: u32::try_from(self.result).ok()?,
                memory: match self.args[1] {
                    0 => None,
                    1 => Some(Memory::Copied { anonymous_bytes: self.args[2] }),
                    2 => Some(Memory::Borrowed),
                    _ => return None,
                },
            },
            KIND_EXEC => Event::Exec { path: ExecPath(self.bytes()) },
            KIND_EXIT => {
                Event::Exit { code: self.result, whole_process: self.flags & FLAG_WHOLE_PROCESS != 0 }
            }
            KIND_MARK => {
                let mark = Mark { time_ns: self.begin_ns, cpu: self.cpu, lost_so_far: self.args[0] };
                return Some(Meaning::Mark(mark));
            }
            KIND_CONTENT => return self.piece().map(Meaning::Piece),
            _ => return None,
        };
        Some(Meaning::Record(Record {
            begin_ns: self.begin_ns,
            process: self.process,
            thread: self.thread,
            cpu: self.cpu,
            lost_before: self.lost,
            event,
        }))
    }

    fn call(&self) -> Option<Call> {
        Some(Call {
            number: self.number,
            abi: if self.flags & FLAG_COMPAT == 0 { Abi::Native } else { Abi::Compat },
            args: self.args,
            result: self.result,
            descriptor: Descriptor::from_number(self.descriptor)?,
            inode: self.inode,
            peer: self.peer()?,
            elapsed_ns: self.elapsed_ns,
            blocked_ns: self.blocked_ns,
            waiting_ns: self.waiting_ns,
            irq_ns: self.irq_ns,
            softnet_ns: self.softnet_ns,
            voluntary: self.voluntary,
            involuntary: self.involuntary,
            faults: self.faults,
            wakeups: (self.flags & FLAG_WAKEUPS != 0).then_some(Wakeups {
                idle_sleeps: self.idle_sleeps,
                idle_ns: self.idle_ns,
                woken_same: self.woken_same,
                woken_busy: self.woken_busy,
                woken_idle: self.woken_idle,
                woken_idle_ns: self.woken_idle_ns,
            }),
        })
    }

    /// Returns the record of an event, from which [`Self::meaning`] returns it.
    pub fn of(record: &Record) -> Self {
        let stored = Self {
            begin_ns: record.begin_ns,
            process: record.process,
            thread: record.thread,
            cpu: record.cpu,
            lost: record.lost_before,
            ..Self::default()
        };
        match record.event {
            Event::Call(call) => Self { kind: KIND_CALL, ..stored.with_call(&call) },
            Event::Unfinished(call) => Self { kind: KIND_UNFINISHED, ..stored.with_call(&call) },
            Event::PageFault { address, error, user, area } => {
                let area = match area {
                    None => 0,
                    Some(Area::Nothing) => 1,
                    Some(Area::Anonymous) => 2,
                    Some(Area::PrivateFile) => 3,
                    Some(Area::Shared) => 4,
                };
                let flags = if user { FLAG_USER_FAULT } else { 0 };
                Self { kind: KIND_PAGE_FAULT, args: [address, error, area, 0, 0, 0], flags, ..stored }
            }
            Event::OffCpu { blocked_ns, waiting_ns } => {
                let elapsed_ns = blocked_ns.saturating_add(waiting_ns);
                Self { kind: KIND_OFF_CPU, elapsed_ns, blocked_ns, waiting_ns, ..stored }
            }
            Event::Fork { child_process, child_thread, memory } => {
                let (memory, bytes) = match memory {
                    None => (0, 0),
                    Some(Memory::Copied { anonymous_bytes }) => (1, anonymous_bytes),
                    Some(Memory::Borrowed) => (2, 0),
                };
                let args = [child_process.into(), memory, bytes, 0, 0, 0];
                Self { kind: KIND_FORK, args, result: child_thread.into(), ..stored }
            }
            Event::Exec { path } => Self { kind: KIND_EXEC, ..stored.with_bytes(&path.0) },
            Event::Exit { code, whole_process } => {
                let flags = if whole_process { FLAG_WHOLE_PROCESS } else { 0 };
                Self { kind: KIND_EXIT, result: code, flags, ..stored }
            }
        }
    }

    /// Returns the pieces of a content of the call with which `self` was made, in their order.
    pub fn pieces(self, content: &Content) -> impl Iterator<Item = Self> {
        // The length has 16 bits: what exceeds them is cut.
        let most = content.bytes.len().min(usize::from(u16::MAX));
        let bytes = &content.bytes[..most];
        let is_cut = content.is_cut || most < content.bytes.len();
        let count = bytes.len().div_ceil(CONTENT_PIECE).max(1);
        (0..count).map(move |piece| {
            let rest = &bytes[piece * CONTENT_PIECE..];
            let mut stored = [0; CONTENT_PIECE];
            let length = rest.len().min(CONTENT_PIECE);
            stored[..length].copy_from_slice(&rest[..length]);
            Self {
                kind: KIND_CONTENT,
                begin_ns: self.end_ns(),
                thread: self.thread,
                process: self.process,
                cpu: self.cpu,
                number: self.number,
                inode: content.argument.into(),
                result: i64::try_from(rest.len()).unwrap_or(i64::MAX),
                flags: if is_cut { FLAG_CUT } else { 0 },
                ..Self::default().with_bytes(&stored)
            }
        })
    }

    fn with_call(self, call: &Call) -> Self {
        let wakeups = call.wakeups.unwrap_or_default();
        let flags = [
            (call.abi == Abi::Compat, FLAG_COMPAT),
            (call.wakeups.is_some(), FLAG_WAKEUPS),
            (call.peer == Some(Peer::SameCpu), FLAG_PEER_SAME_CPU),
            (call.peer == Some(Peer::OtherCpu), FLAG_PEER_OTHER_CPU),
        ];
        Self {
            elapsed_ns: call.elapsed_ns,
            blocked_ns: call.blocked_ns,
            waiting_ns: call.waiting_ns,
            irq_ns: call.irq_ns,
            softnet_ns: call.softnet_ns,
            args: call.args,
            result: call.result,
            inode: call.inode,
            voluntary: call.voluntary,
            involuntary: call.involuntary,
            faults: call.faults,
            number: call.number,
            descriptor: call.descriptor.number(),
            flags: flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum(),
            idle_ns: wakeups.idle_ns,
            woken_idle_ns: wakeups.woken_idle_ns,
            idle_sleeps: wakeups.idle_sleeps,
            woken_same: wakeups.woken_same,
            woken_busy: wakeups.woken_busy,
            woken_idle: wakeups.woken_idle,
            ..self
        }
    }

    /// Returns the record with bytes in place of the arguments.
    fn with_bytes(self, bytes: &[u8; CONTENT_PIECE]) -> Self {
        let mut args = [0; 6];
        for (word, chunk) in args.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        }
        Self { args, ..self }
    }

    /// Returns the peer; `None` if the flags contradict each other.
    fn peer(&self) -> Option<Option<Peer>> {
        match self.flags & (FLAG_PEER_SAME_CPU | FLAG_PEER_OTHER_CPU) {
            0 => Some(None),
            FLAG_PEER_SAME_CPU => Some(Some(Peer::SameCpu)),
            FLAG_PEER_OTHER_CPU => Some(Some(Peer::OtherCpu)),
            _ => None,
        }
    }

    fn piece(&self) -> Option<Piece> {
        let argument = u8::try_from(self.inode).ok()?;
        if usize::from(argument) >= self.args.len() {
            return None;
        }
        Some(Piece {
            call: Key { end_ns: self.begin_ns, thread: self.thread, number: self.number },
            argument,
            is_cut: self.flags & FLAG_CUT != 0,
            left: usize::from(u16::try_from(self.result).ok()?),
            bytes: self.bytes(),
            lost: self.lost,
        })
    }

    /// Returns the bytes that are stored in place of the arguments.
    fn bytes(&self) -> [u8; CONTENT_PIECE] {
        let mut bytes = [0; CONTENT_PIECE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.args) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

fn array<const N: usize>(bytes: &[u8; RECORD_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_survive_a_round_trip_and_any_meaning_is_valid(
            low in any::<[u8; 32]>(), rest in proptest::collection::vec(any::<u8>(), RECORD_BYTES - 32)
        ) {
            let mut bytes = [0; RECORD_BYTES];
            bytes[..32].copy_from_slice(&low);
            bytes[32..].copy_from_slice(&rest);
            let stored = Stored::from_bytes(&bytes);
            prop_assert_eq!(stored.to_bytes(), bytes);
            if let Some(Meaning::Record(record)) = stored.meaning() {
                prop_assert!(record.end_ns() >= record.begin_ns);
                prop_assert_eq!(Stored::of(&record).meaning(), Some(Meaning::Record(record)));
            }
        }
    }

    #[test]
    fn a_call_has_wake_ups_if_its_flags_say_that_they_were_recorded() {
        let wakeups = |flags: u16| {
            let stored = Stored { kind: KIND_CALL, flags, woken_busy: 3, idle_ns: 70, ..Stored::default() };
            match stored.meaning() {
                Some(Meaning::Record(Record { event: Event::Call(call), .. })) => call.wakeups,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(wakeups(FLAG_WAKEUPS), Some(Wakeups { woken_busy: 3, idle_ns: 70, ..Wakeups::default() }));
        assert_eq!(wakeups(!FLAG_WAKEUPS & !FLAG_COMPAT & !FLAG_PEER_SAME_CPU), None);
    }

    #[test]
    fn the_peer_of_a_call_is_where_its_flags_say_and_unknown_in_version_1() {
        let peer = |flags: u16| {
            let stored = Stored { kind: KIND_CALL, flags, ..Stored::default() };
            [stored, stored.of_version_1()].map(|stored| match stored.meaning() {
                Some(Meaning::Record(Record { event: Event::Call(call), .. })) => Some(call.peer),
                Some(other) => panic!("{other:?}"),
                None => None,
            })
        };
        assert_eq!(peer(FLAG_WAKEUPS), [Some(None); 2]);
        assert_eq!(peer(FLAG_PEER_SAME_CPU), [Some(Some(Peer::SameCpu)), Some(None)]);
        assert_eq!(peer(FLAG_PEER_OTHER_CPU), [Some(Some(Peer::OtherCpu)), Some(None)]);
        assert_eq!(peer(FLAG_PEER_SAME_CPU | FLAG_PEER_OTHER_CPU), [None, Some(None)]);
    }

    #[test]
    fn an_unknown_kind_or_descriptor_has_no_meaning() {
        assert_eq!(Stored { kind: 0, ..Stored::default() }.meaning(), None);
        assert_eq!(Stored { kind: 10, ..Stored::default() }.meaning(), None);
        assert_eq!(Stored { kind: KIND_CALL, descriptor: 24, ..Stored::default() }.meaning(), None);
        assert!(Stored { kind: KIND_CALL, descriptor: 23, ..Stored::default() }.meaning().is_some());
    }

    fn event(kind: u8, args: [u64; 6]) -> Option<Event> {
        match (Stored { kind, args, ..Stored::default() }).meaning()? {
            Meaning::Record(record) => Some(record.event),
            Meaning::Mark(_) | Meaning::Piece(_) => None,
        }
    }

    #[test]
    fn the_numbers_of_areas_and_memories_have_these_meanings_and_others_have_none() {
        let (nothing, anonymous) = (Some(Area::Nothing), Some(Area::Anonymous));
        let areas = [None, nothing, anonymous, Some(Area::PrivateFile), Some(Area::Shared)];
        for (number, area) in (0..).zip(areas) {
            let due = Event::PageFault { address: 7, error: 6, user: false, area };
            assert_eq!(event(KIND_PAGE_FAULT, [7, 6, number, 0, 0, 0]), Some(due));
            assert_eq!(Stored::of(&fixture::record(due)).args, [7, 6, number, 0, 0, 0]);
        }
        assert_eq!(event(KIND_PAGE_FAULT, [7, 6, 5, 0, 0, 0]), None);
        let copied = Some(Memory::Copied { anonymous_bytes: 4096 });
        for (number, memory) in (0..).zip([None, copied, Some(Memory::Borrowed)]) {
            let due = Event::Fork { child_process: 9, child_thread: 0, memory };
            assert_eq!(event(KIND_FORK, [9, number, 4096, 0, 0, 0]), Some(due));
            assert_eq!(Stored::of(&fixture::record(due)).args[..2], [9, number]);
        }
        assert_eq!(event(KIND_FORK, [9, 3, 0, 0, 0, 0]), None);
    }
}
