//! Follows which task runs which service: a stack of services for each task, as a trap may interrupt a call,
//! and another trap that trap. It belongs to the task and not to the processor, because a task can be
//! switched away within a trap, and goes on later where it was.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;

use crate::event::{Counts, Event, Kind, Name, Task};
use crate::profile::{Image, Profile, Service, Spent};

/// A service, by numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Call(u16),
    /// Position of its name.
    Trap(u16),
    Start,
    Thread,
    Idle,
    Passage,
}

/// A service that a task has begun and not ended.
#[derive(Debug)]
struct Frame {
    /// Position in `images` of the program that has asked for it: the task can become another one before its
    /// end.
    image: usize,
    key: Key,
    /// Where the interrupted address of a trap is saved; 0 for what is no trap.
    saved_at: u64,
    /// 1 if it began after the first mark and is not yet booked.
    calls: u64,
    /// Instructions that are not yet booked.
    instructions: u64,
}

/// A task that has been made or switched to.
#[derive(Debug)]
struct Known {
    /// Number of its process, which never changes.
    process: u32,
    /// What it runs: a program from its first instruction on.
    kind: Kind,
    /// Position in `images`.
    image: usize,
    /// The last one is what it does now.
    stack: Vec<Frame>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Account {
    calls: u64,
    instructions: u64,
}

/// Attributes the instructions of a machine with one processor. Events are given in the order of execution.
///
/// An event costs no allocation, except for a task or a service that is new, so its memory grows with the
/// number of different ones alone.
#[derive(Debug)]
pub struct Attribution {
    traps: Vec<String>,
    tasks: Vec<Known>,
    by_address: HashMap<u64, usize>,
    /// Position of the task that runs in `tasks`.
    current: usize,
    images: Vec<(u32, Name)>,
    by_name: HashMap<(u32, Name), usize>,
    /// Instructions of the programs, by image.
    user: Vec<u64>,
    accounts: HashMap<(usize, Key), Account>,
    /// Counts at the last event.
    last: Counts,
    /// Counts at the first mark; `None` before it.
    begin: Option<Counts>,
    profile: Profile,
}

impl Attribution {
    /// Begins with a processor of which nothing is known; `traps` are the names of [`Plan`](crate::Plan).
    #[must_use]
    pub fn new(traps: Vec<String>) -> Self {
        let unknown = Task { address: 0, process: u32::MAX, name: [0; 16], kind: Kind::Kernel };
        let mut attribution = Self {
            traps,
            tasks: Vec::new(),
            by_address: HashMap::new(),
            current: 0,
            images: Vec::new(),
            by_name: HashMap::new(),
            user: Vec::new(),
            accounts: HashMap::new(),
            last: Counts::default(),
            begin: None,
            profile: Profile::empty(),
        };
        attribution.switch(unknown);
        attribution
    }

    /// Takes an event, with the instructions executed before it. At each mark of the end, returns the profile
    /// since the first mark of the beginning, if there was one.
    pub fn take(&mut self, counts: Counts, event: Event) -> Option<Profile> {
        self.charge(counts);
        match event {
            Event::Call(number) => self.enter(Key::Call(number), 0),
            Event::Trap { trap, frame } => self.enter(Key::Trap(trap), frame),
            Event::ReturnToKernel { frame } => self.return_to_kernel(frame),
            Event::ReturnToProgram => self.return_to_program(),
            Event::New(task) => {
                self.make(task);
            }
            Event::Switch(task) => {
                self.profile.switches += u64::from(self.begin.is_some());
                self.switch(task);
            }
            Event::Rename { task, name } => self.rename(task, name),
            Event::Begin if self.begin.is_none() => self.begin(counts),
            Event::Begin => {}
            Event::End => return self.begin.map(|begin| self.end(begin, counts)),
        }
        None
    }

    /// Counts an event that the simulator could not read from the guest.
    pub fn miss(&mut self) {
        self.profile.unreadable += u64::from(self.begin.is_some());
    }

    /// Attributes the instructions since the last event.
    fn charge(&mut self, counts: Counts) {
        let last = mem::replace(&mut self.last, counts);
        if self.begin.is_none() {
            return;
        }
        let known = &mut self.tasks[self.current];
        self.user[known.image] += counts.user - last.user;
        let kernel = counts.kernel - last.kernel;
        if let Some(frame) = known.stack.last_mut() {
            frame.instructions += kernel;
        } else if kernel > 0 {
            let key = match (known.process, known.kind) {
                (0, _) => Key::Idle,
                (_, Kind::Kernel) => Key::Thread,
                (_, Kind::Program) => Key::Passage,
            };
            self.accounts.entry((known.image, key)).or_default().instructions += kernel;
        }
    }

    fn enter(&mut self, key: Key, saved_at: u64) {
        let calls = u64::from(self.begin.is_some());
        let known = &mut self.tasks[self.current];
        known.stack.push(Frame { image: known.image, key, saved_at, calls, instructions: 0 });
    }

    /// Ends the trap whose interrupted address is saved there. If there is none, this is not the end of a
    /// trap.
    fn return_to_kernel(&mut self, frame: u64) {
        let stack = &self.tasks[self.current].stack;
        if let Some(position) = stack.iter().rposition(|entered| entered.saved_at == frame && frame != 0) {
            self.leave(position);
        }
    }

    /// Ends everything that the task did in the kernel.
    fn return_to_program(&mut self) {
        let known = &mut self.tasks[self.current];
        let was = mem::replace(&mut known.kind, Kind::Program);
        // A task of the kernel becomes a program without having been called.
        if known.stack.is_empty() {
            self.profile.returns_without_entry += u64::from(self.begin.is_some() && was == Kind::Program);
        } else {
            self.leave(0);
        }
    }

    /// Ends the service at this position of the stack, and those above it, which have not returned.
    fn leave(&mut self, position: usize) {
        let known = &mut self.tasks[self.current];
        if self.begin.is_some() {
            self.profile.entries_without_return += (known.stack.len() - position - 1) as u64;
            book(&mut self.accounts, &mut known.stack[position..]);
        }
        known.stack.truncate(position);
    }

    /// Makes a task, which goes on in the kernel until its program begins. Returns its position.
    fn make(&mut self, task: Task) -> usize {
        let image = self.image(task.process, task.name);
        let mut stack = Vec::new();
        if task.kind == Kind::Program {
            let calls = u64::from(self.begin.is_some());
            stack.push(Frame { image, key: Key::Start, saved_at: 0, calls, instructions: 0 });
        }
        let known = Known { process: task.process, kind: task.kind, image, stack };
        match self.by_address.entry(task.address) {
            Entry::Occupied(position) => {
                // The task that was there has ended in its last call.
                let ended = &mut self.tasks[*position.get()];
                book(&mut self.accounts, &mut ended.stack);
                *ended = known;
                *position.get()
            }
            Entry::Vacant(vacant) => {
                self.tasks.push(known);
                *vacant.insert(self.tasks.len() - 1)
            }
        }
    }

    fn switch(&mut self, task: Task) {
        let known = self.by_address.get(&task.address).copied();
        let known = known.filter(|known| self.tasks[*known].process == task.process);
        // The first task of a kernel is not made by another one, and an event can be unreadable.
        self.current = known.unwrap_or_else(|| self.make(task));
        self.tasks[self.current].image = self.image(task.process, task.name);
    }

    fn rename(&mut self, task: u64, name: Name) {
        let Some(&position) = self.by_address.get(&task) else { return };
        self.tasks[position].image = self.image(self.tasks[position].process, name);
    }

    fn image(&mut self, process: u32, name: Name) -> usize {
        *self.by_name.entry((process, name)).or_insert_with(|| {
            self.images.push((process, name));
            self.user.push(0);
            self.images.len() - 1
        })
    }

    fn begin(&mut self, counts: Counts) {
        self.begin = Some(counts);
        self.accounts.clear();
        self.user.fill(0);
        self.profile = Profile::empty();
        for frame in self.tasks.iter_mut().flat_map(|known| &mut known.stack) {
            (frame.calls, frame.instructions) = (0, 0);
        }
    }

    fn end(&mut self, begin: Counts, counts: Counts) -> Profile {
        for known in &mut self.tasks {
            book(&mut self.accounts, &mut known.stack);
        }
        let mut profile = self.profile.clone();
        profile.total = Counts { user: counts.user - begin.user, kernel: counts.kernel - begin.kernel };
        for (image, (process, name)) in self.images.iter().enumerate() {
            let own = self
                .accounts
                .iter()
                .filter(|((of, _), account)| *of == image && (account.calls > 0 || account.instructions > 0));
            let mut services: Vec<Spent> = own
                .map(|((_, key), account)| Spent {
                    service: self.service(*key),
                    calls: account.calls,
                    instructions: account.instructions,
                })
                .collect();
            services.sort_by(|a, b| (b.instructions, &a.service).cmp(&(a.instructions, &b.service)));
            if self.user[image] > 0 || !services.is_empty() {
                let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                profile.images.push(Image {
                    process: *process,
                    name: String::from_utf8_lossy(&name[..length]).into_owned(),
                    user: self.user[image],
                    services,
                });
            }
        }
        profile
    }

    fn service(&self, key: Key) -> Service {
        match key {
            Key::Call(number) => Service::Call(number),
            Key::Trap(trap) => {
                let name = self.traps.get(usize::from(trap)).cloned();
                Service::Trap(name.unwrap_or_else(|| format!("trap {trap}")))
            }
            Key::Start => Service::Start,
            Key::Thread => Service::Thread,
            Key::Idle => Service::Idle,
            Key::Passage => Service::Passage,
        }
    }
}

/// Adds what these services have spent to their accounts.
fn book(accounts: &mut HashMap<(usize, Key), Account>, frames: &mut [Frame]) {
    for frame in frames {
        let account = accounts.entry((frame.image, frame.key)).or_default();
        account.calls += mem::take(&mut frame.calls);
        account.instructions += mem::take(&mut frame.instructions);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text.as_bytes());
        name
    }

    /// A task whose address is that of others with the same last two digits.
    fn a_task(number: u32, text: &str, kind: Kind) -> Task {
        let address = 0xffff_8880_0000_0000 + u64::from(number % 100) * 64;
        Task { address, process: number, name: name(text), kind }
    }

    fn task(number: u32, text: &str, kind: Kind) -> Event {
        Event::Switch(a_task(number, text, kind))
    }

    fn new(number: u32, text: &str, kind: Kind) -> Event {
        Event::New(a_task(number, text, kind))
    }

    /// Takes events, each after this number of instructions of the program and of the kernel, and returns
    /// lines of an image's process and name, its own instructions, and its services.
    fn attributed(events: &[(u64, u64, Event)]) -> (Vec<String>, Profile) {
        let mut attribution = Attribution::new(vec!["page_fault".into(), "timer".into()]);
        let mut counts = Counts::default();
        let mut profile = None;
        for (user, kernel, event) in events {
            counts.user += user;
            counts.kernel += kernel;
            profile = attribution.take(counts, *event);
        }
        let profile = profile.unwrap();
        let image = |image: &Image| {
            let services = image.services.iter().map(|spent| {
                let name = match &spent.service {
                    Service::Trap(name) => name.clone(),
                    other => format!("{other:?}").to_lowercase(),
                };
                format!(" {name} {}x{}", spent.calls, spent.instructions)
            });
            format!("{} {} {}:{}", image.process, image.name, image.user, services.collect::<String>())
        };
        (profile.images.iter().map(image).collect(), profile)
    }

    const FAULT: Event = Event::Trap { trap: 0, frame: 0x1000 };
    const TIMER: Event = Event::Trap { trap: 1, frame: 0x900 };

    #[test]
    fn a_call_a_trap_in_it_and_a_trap_in_that_have_accounts_of_their_own() {
        let (images, profile) = attributed(&[
            (0, 50, task(7, "cat", Kind::Program)),
            (0, 9, Event::ReturnToProgram),
            (5, 0, Event::Begin),
            (100, 0, Event::Call(0)),
            (0, 10, FAULT),
            (0, 20, TIMER),
            (0, 40, Event::ReturnToKernel { frame: 0x900 }),
            (0, 80, Event::ReturnToKernel { frame: 0x1000 }),
            (0, 160, Event::ReturnToProgram),
            (3, 0, FAULT),
            (0, 7, Event::ReturnToProgram),
            (2, 0, Event::End),
        ]);
        assert_eq!(images, ["7 cat 105: call(0) 1x170 page_fault 2x107 timer 1x40"]);
        assert_eq!((profile.returns_without_entry, profile.entries_without_return), (0, 0));
    }

    #[test]
    fn a_call_that_blocks_goes_on_where_it_was() {
        let (images, profile) = attributed(&[
            (0, 0, task(7, "cat", Kind::Program)),
            (0, 0, Event::ReturnToProgram),
            (0, 0, Event::Begin),
            (1, 0, Event::Call(0)),
            (0, 10, task(0, "swapper/0", Kind::Kernel)),
            (0, 1000, TIMER),
            (0, 30, task(9, "kworker", Kind::Kernel)),
            (0, 200, task(7, "cat", Kind::Program)),
            (0, 5, Event::ReturnToProgram),
            (1, 0, task(0, "swapper/0", Kind::Kernel)),
            (0, 3, Event::ReturnToKernel { frame: 0x900 }),
            (0, 4, Event::End),
        ]);
        let expected =
            ["7 cat 2: call(0) 1x15", "0 swapper/0 0: idle 0x1004 timer 1x33", "9 kworker 0: thread 0x200"];
        assert_eq!(images, expected);
        assert_eq!(profile.switches, 4);
    }

    #[test]
    fn a_new_process_starts_and_becomes_another_program() {
        let (images, profile) = attributed(&[
            (0, 0, task(7, "sh", Kind::Program)),
            (0, 0, Event::ReturnToProgram),
            (0, 0, Event::Begin),
            (1, 0, Event::Call(56)),
            (0, 400, new(8, "sh", Kind::Program)),
            (0, 100, task(8, "sh", Kind::Program)),
            (0, 30, Event::ReturnToProgram),
            (2, 0, Event::Call(59)),
            (0, 100, Event::Rename { task: 0xffff_8880_0000_0000 + 8 * 64, name: name("ls") }),
            // The call belongs to the program that made it.
            (0, 11, Event::ReturnToProgram),
            (4, 0, Event::Call(231)),
            (0, 70, task(7, "sh", Kind::Program)),
            (0, 6, Event::ReturnToProgram),
            // Another process with the same address and number.
            (0, 0, Event::Call(56)),
            (0, 500, new(8, "sh", Kind::Program)),
            (0, 100, task(8, "sh", Kind::Program)),
            (0, 31, Event::End),
        ]);
        let expected =
            ["7 sh 1: call(56) 2x1106", "8 sh 2: call(59) 1x111 start 2x61", "8 ls 4: call(231) 1x70"];
        assert_eq!(images, expected);
        assert_eq!((profile.returns_without_entry, profile.entries_without_return), (0, 0));
    }

    #[test]
    fn a_process_at_the_address_of_an_ended_one_is_another_also_if_it_was_not_seen_to_be_made() {
        let (images, _) = attributed(&[
            (0, 0, task(7, "sh", Kind::Program)),
            (0, 0, Event::ReturnToProgram),
            (0, 0, Event::Begin),
            (2, 0, Event::Call(231)),
            (0, 10, task(107, "ls", Kind::Program)),
            (0, 31, Event::ReturnToProgram),
            (5, 0, Event::End),
        ]);
        assert_eq!(images, ["7 sh 2: call(231) 1x10", "107 ls 5: start 1x31"]);
    }

    #[test]
    fn a_program_that_the_kernel_starts_is_a_task_of_the_kernel_until_it_runs() {
        let (images, profile) = attributed(&[
            (0, 0, Event::Begin),
            (0, 0, new(9, "kworker", Kind::Kernel)),
            (0, 0, task(9, "kworker", Kind::Kernel)),
            (0, 50, task(0, "swapper/0", Kind::Kernel)),
            // It has the memory of the program, and waits for its file.
            (0, 100, task(9, "modprobe", Kind::Program)),
            (0, 20, Event::ReturnToProgram),
            (3, 0, Event::Call(1)),
            (0, 7, Event::ReturnToProgram),
            (0, 4, Event::End),
        ]);
        let expected = [
            "9 kworker 0: thread 0x50",
            "0 swapper/0 0: idle 0x100",
            "9 modprobe 3: thread 0x20 call(1) 1x7 passage 0x4",
        ];
        assert_eq!(images, expected);
        assert_eq!(profile.returns_without_entry, 0);
    }

    #[test]
    fn what_does_not_balance_is_counted() {
        let (_, profile) = attributed(&[
            (0, 0, task(7, "cat", Kind::Program)),
            (0, 0, Event::ReturnToProgram),
            (0, 0, Event::Begin),
            (1, 3, Event::ReturnToProgram),
            (1, 0, Event::Call(0)),
            (0, 1, FAULT),
            (0, 1, TIMER),
            // The kernel synchronises the processor, which ends nothing.
            (0, 1, Event::ReturnToKernel { frame: 0x700 }),
            (0, 1, Event::ReturnToProgram),
            (0, 0, Event::End),
        ]);
        assert_eq!((profile.returns_without_entry, profile.entries_without_return), (1, 2));
    }

    #[test]
    fn events_that_cannot_be_read_are_counted_between_the_marks() {
        let mut attribution = Attribution::new(Vec::new());
        attribution.miss();
        attribution.take(Counts::default(), Event::Begin);
        attribution.miss();
        assert_eq!(attribution.take(Counts::default(), Event::End).unwrap().unreadable, 1);
    }

    #[test]
    fn a_profile_is_from_the_first_beginning_to_the_last_end() {
        let mut attribution = Attribution::new(Vec::new());
        let at = |kernel| Counts { user: 0, kernel };
        assert_eq!(attribution.take(at(1), Event::End), None);
        assert_eq!(attribution.take(at(2), Event::Begin), None);
        assert_eq!(attribution.take(at(5), Event::Begin), None);
        for end in [9, 11] {
            let profile = attribution.take(at(end), Event::End).unwrap();
            assert_eq!(profile.total, at(end - 2));
            let services = profile.images.iter().flat_map(|image| &image.services);
            assert_eq!(services.map(|spent| spent.instructions).sum::<u64>(), end - 2);
        }
    }

    #[test]
    fn a_profile_is_written_and_read() {
        let (_, profile) = attributed(&[(0, 9, Event::Begin), (1, 2, FAULT), (3, 4, Event::End)]);
        assert_eq!(profile.total, Counts { user: 4, kernel: 6 });
        assert_eq!(Profile::from_json(&profile.to_json()).unwrap(), profile);
        let other = profile.to_json().replace("assay.profile/1", "assay.profile/2");
        let refused = Profile::from_json(&other).unwrap_err().to_string();
        assert!(refused.starts_with("the profile has format 'assay.profile/2'"), "{refused}");
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0..3_u16).prop_map(Event::Call),
            (0..2_u16, 0..4_u64).prop_map(|(trap, frame)| Event::Trap { trap, frame }),
            (0..4_u64).prop_map(|frame| Event::ReturnToKernel { frame }),
            Just(Event::ReturnToProgram),
            (0..4_u32).prop_map(|number| task(number, "a", Kind::Program)),
            (0..4_u32).prop_map(|number| new(number, "d", Kind::Program)),
            (0..4_u32).prop_map(|number| new(number * 100, "e", Kind::Kernel)),
            Just(Event::End),
            (0..4_u32).prop_map(|number| task(number * 100, "b", Kind::Kernel)),
            (0..4_u64).prop_map(|number| Event::Rename {
                task: 0xffff_8880_0000_0000 + number * 64,
                name: name("c")
            }),
        ]
    }

    proptest! {
        #[test]
        fn the_sum_over_the_services_is_the_total(
            before in proptest::collection::vec((0..9_u64, 0..9_u64, any_event()), 0..40),
            within in proptest::collection::vec((0..9_u64, 0..9_u64, any_event()), 0..80),
        ) {
            let mut events = before;
            events.push((1, 1, Event::Begin));
            let is_call = |event: &Event| matches!(event, Event::Call(_) | Event::Trap { .. });
            let entries = within.iter().filter(|(_, _, event)| is_call(event)).count() as u64;
            events.extend(within);
            events.push((1, 1, Event::End));
            let (_, profile) = attributed(&events);
            let spent = || profile.images.iter().flat_map(|image| &image.services);
            prop_assert_eq!(profile.images.iter().map(|image| image.user).sum::<u64>(), profile.total.user);
            prop_assert_eq!(spent().map(|spent| spent.instructions).sum::<u64>(), profile.total.kernel);
            let entered = spent().filter(|spent| spent.service != Service::Start).map(|spent| spent.calls);
            prop_assert_eq!(entered.sum::<u64>(), entries);
        }
    }
}
