//! Follows which task runs which service: a stack of services for each task, as a trap may interrupt a call,
//! another trap that trap, and each of them may call a function that is a service by itself. It belongs to
//! the task and not to the processor, because a task can be switched away within a service, and goes on later
//! where it was.

mod time;
mod timeline;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;

use crate::annotation::{Action, Plan};
use crate::event::{Counts, Event, Kind, Moment, Name, Task};
use crate::profile::{Elapsed, Image, Latency, Profile, Service, Spent};
use crate::routine::Routines;
use crate::snapshot::{Snapshot, Snapshots};
use time::{Began, Clock, Waits};
use timeline::{Mode, Recorder};

/// A service, by numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Call(u16),
    /// A trap or a function, by its position in the plan.
    Planned(u16),
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
    /// What was entered.
    entered: Key,
    /// What it is, as far as it is known: of a page fault, its kind.
    key: Key,
    end: End,
    /// 1 if it began after the first mark and is not yet booked.
    calls: u64,
    /// Instructions that are not yet booked.
    instructions: u64,
    /// Its begin; `None` if that was before the first mark or without a clock, or if its end is booked.
    began: Option<Began>,
}

/// What ends a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The return to the program, which ends all the others too.
    ReturnToProgram,
    /// The return from a trap, to the address that is saved there.
    ReturnToKernel(u64),
    /// The return of a function, to the address that is saved there.
    Return(u64),
}

impl Frame {
    fn is_function(&self) -> bool {
        matches!(self.end, End::Return(_))
    }
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
    waits: Waits,
}

/// What a service has spent for an image.
#[derive(Debug, Default, Clone, Copy)]
struct Account {
    calls: u64,
    instructions: u64,
    latency: Latency,
}

/// The first mark.
#[derive(Debug)]
struct Begin {
    counts: Counts,
    clock: Clock,
    /// What each routine had executed.
    executed: Vec<u64>,
}

/// State of a task that has ended (`TASK_DEAD`, `include/linux/sched.h` of Linux).
const DEAD: u32 = 0x80;

/// Attributes the instructions of a machine with one processor. Events are given in the order of execution.
///
/// An event costs no allocation, except for a task or a service that is new, so its memory grows with the
/// number of different ones alone.
#[derive(Debug)]
pub struct Attribution {
    /// Those of the plan.
    services: Vec<Service>,
    /// Position of the page fault in them.
    page_fault: Option<u16>,
    /// Page faults since the start of the processor.
    page_faults: u64,
    routines: Routines,
    /// What each of them had executed when it was last given.
    executed: Vec<u64>,
    tasks: Vec<Known>,
    by_address: HashMap<u64, usize>,
    /// Position of the task that runs in `tasks`.
    current: usize,
    images: Vec<(u32, Name)>,
    by_name: HashMap<(u32, Name), usize>,
    /// Instructions of the programs, by image.
    user: Vec<u64>,
    accounts: HashMap<(usize, Key), Account>,
    /// The last event.
    last: Moment,
    /// Whether the machine's clock counts instructions.
    timed: bool,
    clock: Clock,
    timeline: Recorder,
    /// `None` before the first mark.
    begin: Option<Begin>,
    profile: Profile,
    snapshots: Snapshots,
}

impl Attribution {
    /// Begins with a processor of which nothing is known, for the events of this plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let unknown = Task { address: 0, process: u32::MAX, name: [0; 16], kind: Kind::Kernel };
        let page_fault = plan.points.iter().find_map(|point| match point.action {
            Action::PageFault { service } => Some(service),
            _ => None,
        });
        let mut attribution = Self {
            services: plan.services.clone(),
            page_fault,
            page_faults: 0,
            executed: vec![0; plan.routines.len()],
            routines: plan.routines.clone(),
            tasks: Vec::new(),
            by_address: HashMap::new(),
            current: 0,
            images: Vec::new(),
            by_name: HashMap::new(),
            user: Vec::new(),
            accounts: HashMap::new(),
            last: Moment::default(),
            timed: plan.timed,
            clock: Clock::default(),
            timeline: Recorder::new(),
            begin: None,
            profile: Profile::empty(plan.gaps.clone()),
            snapshots: Snapshots::default(),
        };
        attribution.current = attribution.make(unknown);
        attribution
    }

    /// Takes an event, with what was executed before it. At each mark of the end, returns the profile
    /// since the first mark of the beginning, if there was one.
    pub fn take(&mut self, moment: Moment, event: Event) -> Option<Profile> {
        self.charge(moment);
        match event {
            Event::Call(number) => self.enter(Key::Call(number), End::ReturnToProgram),
            Event::Trap { service, frame } => {
                self.page_faults += u64::from(self.page_fault == Some(service));
                self.enter(Key::Planned(service), End::ReturnToKernel(frame));
            }
            Event::Kind { of, is } => self.specify(of, is),
            Event::Function { service, frame } => self.enter(Key::Planned(service), End::Return(frame)),
            Event::Return { frame } => self.return_from_function(frame),
            Event::ReturnToKernel { frame } => self.return_to_kernel(frame),
            Event::ReturnToProgram => self.return_to_program(),
            Event::New(task) => {
                self.make(task);
            }
            Event::Switch { state, to } => {
                self.profile.switches += u64::from(self.begin.is_some());
                self.switch(state, to);
            }
            Event::Wake { task, state, of } if state & of != 0 => self.wake(task),
            Event::Wake { .. } => {}
            Event::Halt => {
                self.timeline.end_halt(0);
                self.clock.halt();
            }
            Event::Clock { time_ns } => self.set_clock(time_ns),
            Event::Rename { task, name } => self.rename(task, name),
            Event::Begin if self.begin.is_none() => self.begin(moment.counts),
            Event::Begin => {}
            Event::Snapshot(number) if self.begin.is_some() => {
                let Moment { counts, .. } = moment;
                self.snapshots.add(Snapshot { number, counts, page_faults: self.page_faults });
            }
            Event::Snapshot(_) => {}
            Event::End => return self.end(moment.counts),
        }
        None
    }

    /// Whether the current task is in a function that is a service, whose return must be seen.
    #[must_use]
    pub fn is_in_function(&self) -> bool {
        self.tasks[self.current].stack.last().is_some_and(Frame::is_function)
    }

    /// Whether the processor was halted and the clock has not been read since, which must be seen.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.clock.is_halted()
    }

    /// Takes the instructions that the processor has executed in each of [`Plan::routines`], by position.
    /// Only needed before the marks.
    ///
    /// # Panics
    /// If their number is another one.
    pub fn take_routines(&mut self, executed: &[u64]) {
        self.executed.copy_from_slice(executed);
    }

    /// The snapshots since the first mark.
    #[must_use]
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// Counts an event that the simulator could not read from the guest.
    pub fn miss(&mut self) {
        self.profile.unreadable += u64::from(self.begin.is_some());
    }

    /// Attributes the instructions since the last event, and the time that has passed.
    fn charge(&mut self, moment: Moment) {
        let last = mem::replace(&mut self.last, moment);
        let ran_ns = if self.timed { self.clock.run(moment.ran_ns) } else { 0 };
        if self.begin.is_none() {
            return;
        }
        let known = &mut self.tasks[self.current];
        self.user[known.image] += moment.counts.user - last.counts.user;
        let kernel = moment.counts.kernel - last.counts.kernel;
        let mut in_kernel = Mode::Kernel;
        if let Some(frame) = known.stack.last_mut() {
            frame.instructions += kernel;
        } else {
            let key = match (known.process, known.kind) {
                (0, _) => Key::Idle,
                (_, Kind::Kernel) => Key::Thread,
                (_, Kind::Program) => Key::Passage,
            };
            if key == Key::Idle {
                in_kernel = Mode::Idle;
            }
            if kernel > 0 {
                self.accounts.entry((known.image, key)).or_default().instructions += kernel;
            }
        }
        let user_ns = moment.ran_user_ns.saturating_sub(last.ran_user_ns).min(ran_ns);
        self.pass(Mode::User, user_ns);
        self.pass(in_kernel, ran_ns - user_ns);
    }

    /// The processor has done this for some time.
    fn pass(&mut self, mode: Mode, time_ns: u64) {
        if self.clock.is_halted() {
            self.timeline.add_after_halt(mode, time_ns);
        } else {
            self.timeline.add(mode, time_ns);
        }
    }

    fn enter(&mut self, key: Key, end: End) {
        let known = &self.tasks[self.current];
        let frame = self.frame(known.image, key, end, &known.waits);
        self.tasks[self.current].stack.push(frame);
    }

    /// A service that begins now.
    fn frame(&self, image: usize, key: Key, end: End, waits: &Waits) -> Frame {
        let counts = self.begin.is_some();
        let began = (counts && self.timed).then(|| Began::new(self.clock.now_ns(), waits));
        Frame { image, entered: key, key, end, calls: u64::from(counts), instructions: 0, began }
    }

    /// Books the trap that was entered last as this kind of it. The kernel also handles pages without a trap,
    /// those of a program that a call needs: then nothing changes.
    fn specify(&mut self, of: u16, is: u16) {
        let stack = &mut self.tasks[self.current].stack;
        let innermost = stack.iter_mut().rev().find(|frame| !frame.is_function());
        if let Some(frame) = innermost.filter(|frame| frame.entered == Key::Planned(of)) {
            frame.key = Key::Planned(is);
        }
    }

    /// Ends the function whose caller is saved there, and those that it has left by a jump to another
    /// function.
    fn return_from_function(&mut self, frame: u64) {
        let ends = |last: &Frame| last.end == End::Return(frame);
        while let stack = &self.tasks[self.current].stack
            && stack.last().is_some_and(ends)
        {
            self.leave(stack.len() - 1);
        }
    }

    /// Ends the trap whose interrupted address is saved there. If there is none, this is not the end of a
    /// trap.
    fn return_to_kernel(&mut self, frame: u64) {
        let stack = &self.tasks[self.current].stack;
        if let Some(position) = stack.iter().rposition(|entered| entered.end == End::ReturnToKernel(frame)) {
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
            let (ended, lost) = known.stack[position..].split_at_mut(1);
            book(&mut self.accounts, ended, Some((self.clock.now_ns(), &known.waits)));
            book(&mut self.accounts, lost, None);
        }
        known.stack.truncate(position);
    }

    /// Makes a task, which goes on in the kernel until its program begins. Returns its position.
    fn make(&mut self, task: Task) -> usize {
        let image = self.image(task.process, task.name);
        let waits = Waits::new(self.clock.now_ns());
        let mut stack = Vec::new();
        if task.kind == Kind::Program {
            stack.push(self.frame(image, Key::Start, End::ReturnToProgram, &waits));
        }
        let known = Known { process: task.process, kind: task.kind, image, stack, waits };
        match self.by_address.entry(task.address) {
            Entry::Occupied(position) => {
                // The task that was there has ended in its last call.
                let ended = &mut self.tasks[*position.get()];
                book(&mut self.accounts, &mut ended.stack, None);
                *ended = known;
                *position.get()
            }
            Entry::Vacant(vacant) => {
                self.tasks.push(known);
                *vacant.insert(self.tasks.len() - 1)
            }
        }
    }

    /// Runs another task instead of the current one, which is in this state.
    fn switch(&mut self, state: u32, task: Task) {
        let now_ns = self.clock.now_ns();
        let last = &mut self.tasks[self.current];
        if state == DEAD {
            // What ends before its program begins has not started.
            let start = last.stack.iter_mut().find(|frame| frame.entered == Key::Start);
            start.into_iter().for_each(|frame| frame.began = None);
            book(&mut self.accounts, &mut last.stack, Some((now_ns, &last.waits)));
        }
        last.waits.pause(now_ns);
        let known = self.by_address.get(&task.address).copied();
        let known = known.filter(|known| self.tasks[*known].process == task.process);
        // The first task of a kernel is not made by another one, and an event can be unreadable.
        self.current = known.unwrap_or_else(|| self.make(task));
        let image = self.image(task.process, task.name);
        let known = &mut self.tasks[self.current];
        known.image = image;
        known.waits.resume(now_ns);
    }

    /// Wakes a task up that was blocked.
    fn wake(&mut self, task: u64) {
        if let Some(&position) = self.by_address.get(&task) {
            self.tasks[position].waits.wake(self.clock.now_ns());
        }
    }

    /// Adds the time for which the processor was halted, from a reading of the clock.
    fn set_clock(&mut self, time_ns: u64) {
        let halt = self.clock.set(time_ns);
        self.timeline.end_halt(halt.map_or(0, |halt| halt.length_ns));
        let Some(halt) = halt else { return };
        for known in &mut self.tasks {
            known.waits.correct(halt);
            let begun = known.stack.iter_mut().filter_map(|frame| frame.began.as_mut());
            begun.for_each(|began| began.correct(halt));
        }
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
        self.begin = Some(Begin { counts, clock: self.clock, executed: self.executed.clone() });
        self.timeline = Recorder::new();
        self.accounts.clear();
        self.user.fill(0);
        self.profile = Profile::empty(mem::take(&mut self.profile.gaps));
        for frame in self.tasks.iter_mut().flat_map(|known| &mut known.stack) {
            (frame.calls, frame.instructions, frame.began) = (0, 0, None);
        }
    }

    /// The profile since the first mark, if there was one.
    fn end(&mut self, counts: Counts) -> Option<Profile> {
        let begin = self.begin.as_ref()?;
        for known in &mut self.tasks {
            book(&mut self.accounts, &mut known.stack, None);
        }
        let mut profile = self.profile.clone();
        profile.total =
            Counts { user: counts.user - begin.counts.user, kernel: counts.kernel - begin.counts.kernel };
        profile.elapsed = self.timed.then(|| Elapsed {
            total_ns: self.clock.now_ns() - begin.clock.now_ns(),
            halted_ns: self.clock.halted_ns - begin.clock.halted_ns,
            unknown_halts: self.clock.unknown_halts() - begin.clock.unknown,
        });
        profile.routines = self
            .routines
            .by_name(self.executed.iter().zip(&begin.executed).map(|(executed, before)| executed - before));
        profile.timeline = self.timed.then(|| self.timeline.timeline());
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
                    latency: self.timed.then_some(account.latency),
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
        Some(profile)
    }

    fn service(&self, key: Key) -> Service {
        match key {
            Key::Call(number) => Service::Call(number),
            Key::Planned(position) => self.services[usize::from(position)].clone(),
            Key::Start => Service::Start,
            Key::Thread => Service::Thread,
            Key::Idle => Service::Idle,
            Key::Passage => Service::Passage,
        }
    }
}

/// Adds what these services have spent to their accounts, with their latency if they end: now, after their
/// task has waited this long.
fn book(accounts: &mut HashMap<(usize, Key), Account>, frames: &mut [Frame], end: Option<(u64, &Waits)>) {
    for frame in frames {
        let account = accounts.entry((frame.image, frame.key)).or_default();
        account.calls += mem::take(&mut frame.calls);
        account.instructions += mem::take(&mut frame.instructions);
        if let Some((now_ns, waits)) = end
            && let Some(began) = frame.began.take()
        {
            account.latency += began.latency(now_ns, waits);
        }
    }
}

#[cfg(test)]
mod tests;
