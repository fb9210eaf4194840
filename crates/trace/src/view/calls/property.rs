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
    /// Its first argument.
    Argument1,
    /// Its second argument.
    Argument2,
    /// Its third argument.
    Argument3,
    /// Its fourth argument.
    Argument4,
    /// Its fifth argument.
    Argument5,
    /// Its sixth argument.
    Argument6,
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

/// Every property in the order of its number, with its name.
const PROPERTIES: [(Property, &str); 19] = [
    (Property::Result, "result"),
    (Property::Sleep, "sleep"),
    (Property::PageFaults, "page faults"),
    (Property::WakeUps, "wake-ups"),
    (Property::Preemption, "preemption"),
    (Property::Descriptor, "descriptor"),
    (Property::Argument1, "argument 1"),
    (Property::Argument2, "argument 2"),
    (Property::Argument3, "argument 3"),
    (Property::Argument4, "argument 4"),
    (Property::Argument5, "argument 5"),
    (Property::Argument6, "argument 6"),
    (Property::Peer, "CPU of the peer"),
    (Property::Inode, "inode"),
    (Property::Process, "process"),
    (Property::Thread, "thread"),
    (Property::Cpu, "CPU"),
    (Property::NetworkSoftirqs, "network softirqs"),
    (Property::Interrupts, "interrupts"),
];

const ARGUMENTS: [Property; 6] = [
    Property::Argument1,
    Property::Argument2,
    Property::Argument3,
    Property::Argument4,
    Property::Argument5,
    Property::Argument6,
];

impl Property {
    /// Returns the name of the property.
    #[must_use]
    pub fn name(self) -> &'static str {
        PROPERTIES[self as usize].1
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
    /// By the number of the property.
    properties: [OfProperty; PROPERTIES.len()],
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
        let sleeps = self.of(P::Sleep);
        sleeps.word(bucket, sleep(call));
        if call.voluntary > 0 {
            sleeps.class(bucket, Class::Word("yes"));
        }
        let faults = self.of(P::PageFaults);
        faults.number(bucket, call.faults.into());
        faults.class(bucket, Class::Word(if call.faults == 0 { "none" } else { "some" }));
        if let Some(wakeups) = &call.wakeups {
            let (woken, values) = (woken(wakeups), self.of(P::WakeUps));
            values.word(bucket, woken);
            if woken != "none" {
                values.class(bucket, Class::Word("a thread"));
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
        &mut self.properties[property as usize]
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
        let arguments = syscall::arguments(call.number).iter().zip(call.args).zip(ARGUMENTS).enumerate();
        for (position, ((kind, argument), property)) in arguments {
            if !syscall::uses(call.number, &call.args, position) {
                continue;
            }
            let values = self.of(property);
            let content = contents.iter().find(|content| usize::from(content.argument) == position);
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
        self.each().flat_map(|(property, of)| {
            of.values.values().chain(of.classes.values()).map(move |group| (property, group))
        })
    }

    /// Returns the calls of each property, grouped by its values if there are at most `values_max` of them,
    /// otherwise by classes of values, if it has any; the most frequent first.
    pub fn groups(&self, values_max: usize) -> impl Iterator<Item = (Property, Vec<&Group>)> {
        self.each().map(move |(property, of)| {
            let is_many = of.values.len() > values_max || of.dropped > 0;
            let by_class = is_many && !of.classes.is_empty();
            let mut groups: Vec<&Group> =
                if by_class { of.classes.values().collect() } else { of.values.values().collect() };
            groups.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.text.cmp(&b.text)));
            (property, groups)
        })
    }

    /// Returns the properties of which values were dropped, and how many calls had these.
    pub fn dropped(&self) -> Vec<(Property, u64)> {
        let dropped = self.each().filter(|(_, of)| of.dropped > 0);
        dropped.map(|(property, of)| (property, of.dropped)).collect()
    }

    fn each(&self) -> impl Iterator<Item = (Property, &OfProperty)> {
        PROPERTIES.iter().map(|(property, _)| *property).zip(&self.properties)
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
    fn the_number_of_a_property_is_its_position() {
        let numbers = PROPERTIES.map(|(property, _)| property as usize);
        assert_eq!(numbers, std::array::from_fn(|position| position));
    }

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
