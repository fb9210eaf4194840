//! The properties of a call that may explain how long it took.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
};

use foldhash::HashMap;

use crate::{
    descriptor::Descriptor,
    record::{Abi, Call, Content, Peer, Record, Wakeups, errno_name},
    syscall::{self, Kind, Outcome},
    view::sequence,
};

/// A property of a call. Of two that explain a mode equally well, the first is shown first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// Its result.
    Result,
    /// Whether it slept, and the CPU on which it continued.
    Sleep,
    /// Page faults.
    PageFaults,
    /// The CPU of the threads that it woke.
    WakeUps,
    /// Whether it was preempted.
    Preemption,
    /// Kind of its descriptor.
    Descriptor,
    /// The argument at this position, counted from 0.
    Argument(u8),
    /// CPU of the peer of its connection.
    Peer,
    /// Inode of its descriptor.
    Inode,
    /// Process.
    Process,
    /// Thread.
    Thread,
    /// CPU on which it ended.
    Cpu,
    /// Whether network softirqs are more than a quarter of its time.
    NetworkSoftirqs,
    /// Whether other interrupts are more than a quarter of its time.
    Interrupts,
}

impl Property {
    /// Returns the name of the property.
    #[must_use]
    pub fn name(self) -> String {
        let name = match self {
            Self::Argument(position) => return format!("argument {}", position + 1),
            Self::Result => "result",
            Self::Sleep => "sleep",
            Self::PageFaults => "page faults",
            Self::WakeUps => "wake-ups",
            Self::Preemption => "preemption",
            Self::Descriptor => "descriptor",
            Self::Peer => "CPU of the peer",
            Self::Inode => "inode",
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Cpu => "CPU",
            Self::NetworkSoftirqs => "network softirqs",
            Self::Interrupts => "interrupts",
        };
        name.to_owned()
    }
}

/// A value of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Value {
    Word(&'static str),
    Number(u64),
    Errno(u16),
    /// The value of an argument, or a hash of its content.
    Argument(u64),
}

/// A kind of values of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Class {
    Word(&'static str),
    /// A number with so many binary digits.
    Digits(u32),
}

/// Values of a property that are counted at the same time.
const VALUES_MAX: usize = 1_024;

/// How often each value of each property is in each bucket of the histogram.
#[derive(Debug, Default)]
pub(super) struct Values {
    properties: BTreeMap<Property, OfProperty>,
}

/// The values of a property, and the same calls by the classes of their values.
#[derive(Debug, Default)]
struct OfProperty {
    values: HashMap<Value, Group>,
    classes: BTreeMap<Class, Group>,
    /// Calls that were counted and then dropped.
    dropped: u64,
}

/// The calls with one value, or with a value of one class.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub text: String,
    pub is_class: bool,
    pub calls: u64,
    /// Calls less those of the values that were dropped when there was no more room.
    weight: u64,
    /// Calls in each bucket.
    pub buckets: BTreeMap<usize, u64>,
}

impl Values {
    /// Adds the properties of a call whose time is in `bucket`.
    pub fn add(&mut self, bucket: usize, record: &Record, call: &Call, contents: &[Content]) {
        use Property as P;
        self.add_result(bucket, call);
        self.of(P::Sleep).word(bucket, sleep(call));
        if call.voluntary > 0 {
            self.of(P::Sleep).class(bucket, Class::Word("yes"));
        }
        let faults = call.faults.into();
        self.of(P::PageFaults).number(bucket, faults);
        self.of(P::PageFaults).class(bucket, Class::Word(if faults == 0 { "none" } else { "some" }));
        if let Some(wakeups) = &call.wakeups {
            self.of(P::WakeUps).word(bucket, woken(wakeups));
            if woken(wakeups) != "none" {
                self.of(P::WakeUps).class(bucket, Class::Word("a thread"));
            }
        }
        self.of(P::Preemption).word(bucket, yes_or_no(call.involuntary > 0));
        let is_much = |part_ns: u64| yes_or_no(part_ns > call.elapsed_ns / 4);
        self.of(P::NetworkSoftirqs).word(bucket, is_much(call.softnet_ns));
        self.of(P::Interrupts).word(bucket, is_much(call.irq_ns));
        let descriptor = if call.descriptor == Descriptor::None { "none" } else { call.descriptor.name() };
        self.of(P::Descriptor).word(bucket, descriptor);
        if call.descriptor != Descriptor::None {
            self.of(P::Inode).number(bucket, call.inode);
        }
        if call.descriptor.is_tcp() {
            let peer = match call.peer {
                Some(Peer::SameCpu) => "the same",
                Some(Peer::OtherCpu) => "another",
                None => "unknown",
            };
            self.of(P::Peer).word(bucket, peer);
        }
        self.of(P::Process).number(bucket, record.process.into());
        self.of(P::Thread).number(bucket, record.thread.into());
        self.of(P::Cpu).number(bucket, record.cpu.into());
        if call.abi == Abi::Native {
            self.add_arguments(bucket, call, contents);
        }
    }

    fn of(&mut self, property: Property) -> &mut OfProperty {
        self.properties.entry(property).or_default()
    }

    fn add_result(&mut self, bucket: usize, call: &Call) {
        let results = self.of(Property::Result);
        match (call.errno(), call.rule().result) {
            (Some(errno), _) => {
                results.count(bucket, Value::Errno(errno), || errno_name(errno).into_owned());
                results.class(bucket, Class::Word("an error"));
            }
            (None, Outcome::Descriptor) => results.both(bucket, "a descriptor"),
            (None, Outcome::Other) if call.abi == Abi::Native && syscall::returns_address(call.number) => {
                results.both(bucket, "an address");
            }
            (None, Outcome::Bytes(_) | Outcome::Other) => match u64::try_from(call.result) {
                Ok(number) => {
                    results.number(bucket, number);
                    results.class(bucket, Class::of(number));
                }
                Err(_) => results.both(bucket, "negative"),
            },
        }
    }

    fn add_arguments(&mut self, bucket: usize, call: &Call, contents: &[Content]) {
        let arguments = syscall::arguments(call.number).iter().zip(call.args).zip(0_u8..);
        for ((kind, argument), position) in arguments {
            if !syscall::uses(call.number, &call.args, position.into()) {
                continue;
            }
            let values = self.of(Property::Argument(position));
            let content = contents.iter().find(|content| content.argument == position);
            let text = || {
                let mut text = String::new();
                sequence::push_argument(&mut text, *kind, argument, content);
                text
            };
            let value = match (kind, content) {
                // Some bytes of an address have no meaning.
                (Kind::Address | Kind::AddressOut, Some(_)) => hash(&text()),
                (_, Some(content)) => hash(&(content.is_cut, &content.bytes)),
                (Kind::Path | Kind::Program, None) => {
                    values.word(bucket, "not recorded");
                    continue;
                }
                (Kind::Pointer | Kind::Address | Kind::AddressOut, None) => {
                    values.word(bucket, if argument == 0 { "NULL" } else { "not NULL" });
                    continue;
                }
                (Kind::Size | Kind::Offset | Kind::Hexadecimal, None) => argument,
                // The upper half of the register is undefined.
                (Kind::Int | Kind::Unsigned | Kind::Descriptor | Kind::Mode | Kind::Named(_), None) => {
                    argument & u64::from(u32::MAX)
                }
            };
            values.count(bucket, Value::Argument(value), text);
            if let Kind::Size | Kind::Offset = kind {
                let is_negative = *kind == Kind::Offset && argument.cast_signed() < 0;
                values.class(bucket, if is_negative { Class::Word("negative") } else { Class::of(argument) });
            }
        }
    }

    /// Returns each property with the calls of each of its values and classes of values.
    pub fn all(&self) -> impl Iterator<Item = (Property, &Group)> {
        self.properties.iter().flat_map(|(property, of)| {
            of.values.values().chain(of.classes.values()).map(|group| (*property, group))
        })
    }

    /// Returns the calls of each property, grouped by its values if there are at most `values_max` of them,
    /// otherwise by classes of values, if it has any; the most frequent first.
    pub fn groups(&self, values_max: usize) -> impl Iterator<Item = (Property, Vec<&Group>)> {
        self.properties.iter().map(move |(property, of)| {
            let is_many = of.values.len() > values_max || of.dropped > 0;
            let by_class = is_many && !of.classes.is_empty();
            let mut groups: Vec<&Group> =
                if by_class { of.classes.values().collect() } else { of.values.values().collect() };
            groups.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.text.cmp(&b.text)));
            (*property, groups)
        })
    }

    /// Returns the properties of which values were dropped, and how many calls had these.
    pub fn dropped(&self) -> Vec<(Property, u64)> {
        let dropped = self.properties.iter().filter(|(_, of)| of.dropped > 0);
        dropped.map(|(property, of)| (*property, of.dropped)).collect()
    }
}

impl OfProperty {
    fn word(&mut self, bucket: usize, word: &'static str) {
        self.count(bucket, Value::Word(word), || word.to_owned());
    }

    /// Counts a word that is its own class.
    fn both(&mut self, bucket: usize, word: &'static str) {
        self.word(bucket, word);
        self.class(bucket, Class::Word(word));
    }

    fn number(&mut self, bucket: usize, number: u64) {
        self.count(bucket, Value::Number(number), || number.to_string());
    }

    fn count(&mut self, bucket: usize, value: Value, text: impl FnOnce() -> String) {
        if self.values.len() == VALUES_MAX && !self.values.contains_key(&value) {
            self.drop_rare();
        }
        let group = || Group { text: text(), is_class: false, calls: 0, weight: 0, buckets: BTreeMap::new() };
        self.values.entry(value).or_insert_with(group).add(bucket);
    }

    /// Makes room (Misra and Gries): takes from each value as many calls as leave half of the values none,
    /// and drops these. A value that one of 512 calls has is kept, and counted from its first call on if it
    /// has always been so frequent.
    fn drop_rare(&mut self) {
        let mut weights: Vec<u64> = self.values.values().map(|group| group.weight).collect();
        let (_, middle, _) = weights.select_nth_unstable(VALUES_MAX / 2);
        let least = *middle;
        let dropped = self.values.extract_if(|_, group| {
            group.weight = group.weight.saturating_sub(least);
            group.weight == 0
        });
        self.dropped += dropped.map(|(_, group)| group.calls).sum::<u64>();
    }

    fn class(&mut self, bucket: usize, class: Class) {
        let group =
            || Group { text: class.text(), is_class: true, calls: 0, weight: 0, buckets: BTreeMap::new() };
        self.classes.entry(class).or_insert_with(group).add(bucket);
    }
}

impl Group {
    fn add(&mut self, bucket: usize) {
        self.calls += 1;
        self.weight += 1;
        *self.buckets.entry(bucket).or_default() += 1;
    }

    /// Returns how many of the calls are in these buckets.
    pub fn within(&self, buckets: Range<usize>) -> u64 {
        self.buckets.range(buckets).map(|(_, calls)| calls).sum()
    }
}

impl Class {
    fn of(number: u64) -> Self {
        Self::Digits(u64::BITS - number.leading_zeros())
    }

    fn text(self) -> String {
        match self {
            Self::Word(word) => word.to_owned(),
            Self::Digits(digits @ (0 | 1)) => digits.to_string(),
            Self::Digits(digits) => {
                let lowest = 1_u64 << (digits - 1);
                format!("{lowest} to {}", lowest + (lowest - 1))
            }
        }
    }
}

fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn sleep(call: &Call) -> &'static str {
    match call.wakeups {
        _ if call.voluntary == 0 => "no",
        Some(Wakeups { idle_sleeps: 1.., .. }) => "yes, then on an idle CPU",
        Some(_) => "yes, then on a busy CPU",
        None => "yes",
    }
}

fn woken(wakeups: &Wakeups) -> &'static str {
    match wakeups {
        Wakeups { woken_idle: 1.., .. } => "a thread on an idle CPU",
        Wakeups { woken_busy: 1.., .. } => "a thread on a busy CPU",
        Wakeups { woken_same: 1.., .. } => "a thread on the same CPU",
        _ => "none",
    }
}

fn hash(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_becomes_frequent_replaces_one_that_no_longer_is() {
        let mut inodes = OfProperty::default();
        (0..600 * 511).for_each(|call| inodes.number(0, call % 511));
        for rare in 1_000..101_000 {
            inodes.number(0, rare);
            inodes.number(0, 999);
        }
        let frequent = inodes.values.get(&Value::Number(999)).map_or(0, |group| group.calls);
        assert!(inodes.values.len() <= VALUES_MAX && frequent > 98_000, "{frequent}");
    }
}
