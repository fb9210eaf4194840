//! The context switch (lmbench, 1996, section 6.6; thesis, section 2.2.4).
//!
//! A token goes round a ring of processes through pipes. Each process adds up a piece of memory, its working
//! set, and passes the token on. One switch is a pass less the same pass within one process. Its meaning
//! depends on whose memory is added up:
//!
//! - `context_switch` is that of the thesis: the pieces lie in one region that all processes share, and the
//!   single process reads the same pieces in the same order. The caches hold the same lines both times, so
//!   that neither includes their refilling; the remainder is the switch, including what the hardware loses by
//!   it.
//! - `context_switch_refill` is that of lmbench: every process has its own piece, and the single process
//!   reads its own piece repeatedly, from the cache. The switch includes the refilling of the caches. On a
//!   machine whose caches hold all pieces this is little; lmbench prints nothing if the difference is below
//!   zero, whereas here such a sample is counted as one without a cost.

use std::io;
use std::rc::Rc;

use assay_quantity::{Key, PrimitiveId, Size};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::kernel::raise_descriptor_limit;
use crate::platform::layout::{Buffer, LINE};
use crate::platform::partner::Partner;
use crate::primitive::kit::duplex::{End, one_pipe};
use crate::primitive::kit::limit;
use crate::primitive::kit::placement::{partner_cpu, sharing};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &[
            "process.context_switch{processes=2|8|16,cpus=same}",
            "process.context_switch{processes=2,cpus=different}",
        ],
        full: &["process.context_switch{processes=2|4|8|16|24|32|64|96,cpus=same}"],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "one switch in a ring of processes without a working set: a pass of a token between two \
                processes less a pass within one; on different processors including the waking of an idle one",
        source: "lmbench 1996, section 6.6; thesis, section 2.2.4",
        prepare: switch,
    },
    Row {
        quick: &["process.context_switch{set=16KiB|64KiB,processes=2|8|16,cpus=same}"],
        full: &["process.context_switch{set=16KiB|64KiB,processes=2|4|8|16|24|32|64|96,cpus=same}"],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "one switch in a ring of processes that each add up `set` bytes of a shared region, less the \
                pass and the adding up within one process",
        source: "thesis, section 2.2.4",
        prepare: switch,
    },
    Row {
        quick: &["process.context_switch_refill{set=64KiB,processes=2|8|16,cpus=same}"],
        full: &["process.context_switch_refill{set=16KiB|64KiB,processes=2|4|8|16|24|32|64|96,cpus=same}"],
        cost: Per::Operation,
        calls: &["read", "write"],
        about: "one switch in a ring of processes that each add up `set` bytes of their own, less the pass \
                and the adding up of one such set within one process: includes the refilling of the caches",
        source: "lmbench 1996, section 6.6",
        prepare: switch_and_refill,
    },
];

/// Maximum processes in a ring: a sample forks all of them.
const PROCESSES_MAX: u64 = 1024;

/// Maximum bytes of all working sets together.
const SETS_MAX: u64 = 1 << 30;

/// Prepares the switch without the refilling of caches: one region for all.
fn switch(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let processes = processes(id)?;
    let words = words_of_set(id, processes)?;
    ring(id, setting, processes, Sets::Shared { words })
}

/// Prepares the switch with the refilling of caches: a separate piece of memory for each.
fn switch_and_refill(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let processes = processes(id)?;
    let words = words_of_set(id, processes)?;
    ring(id, setting, processes, Sets::Private { words })
}

/// Returns the number of processes in the ring that an id specifies.
fn processes(id: &PrimitiveId) -> Result<usize, Refusal> {
    /// Descriptors that this process uses for other purposes.
    const OTHERS: u64 = 64;
    let most = match id.word(Key::Cpus) {
        // One other process: a larger ring would also pass the token between processes that share a
        // processor.
        "different" => 2,
        // The pass within one process uses the same number of pipes, each with two descriptors.
        _ => PROCESSES_MAX.min(raise_descriptor_limit().saturating_sub(OTHERS) / 2),
    };
    limit::count(id, Key::Processes, 2..=most)
}

/// Returns the number of words of a working set; 0 if the id does not specify one.
fn words_of_set(id: &PrimitiveId, processes: usize) -> Result<usize, Refusal> {
    let Some(bytes) = id.number(Key::Set) else { return Ok(0) };
    let most = SETS_MAX / processes as u64;
    if bytes == 0 || bytes > most {
        return Err(Refusal::Unavailable(format!(
            "the set of {id} must be between 1B and {} for {processes} processes; choose another one",
            Size(most)
        )));
    }
    usize::try_from(bytes.div_ceil(WORD)).map_err(|error| Refusal::Failed(io::Error::other(error)))
}

const WORD: u64 = size_of::<u64>() as u64;

/// The ownership of the working sets.
#[derive(Debug, Clone, Copy)]
enum Sets {
    /// Pieces of one region.
    Shared { words: usize },
    /// One for each process.
    Private { words: usize },
}

impl Sets {
    fn words(self) -> usize {
        match self {
            Sets::Shared { words } | Sets::Private { words } => words,
        }
    }
}

fn ring(id: &PrimitiveId, setting: &mut Setting, processes: usize, sets: Sets) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let pieces = match sets {
        Sets::Shared { .. } => processes,
        Sets::Private { .. } => 1,
    };
    let region = Rc::new(Region::new(0..pieces, sets.words(), &mut setting.rng)?);
    let baseline = Within::new(processes, region.clone())?;
    let operation = Ring::new(processes, cpu, sets, region, &mut setting.rng)?;
    let sharing = match operation.partners.as_slice() {
        [partner] => sharing(setting, cpu, partner),
        partners => Sharing::OneCpu { partners: partners.iter().map(Partner::pid).collect() },
    };
    Ok(Prepared { operation: Box::new(operation), baseline: Some(Box::new(baseline)), sharing })
}

/// Working sets in one piece of memory, one after another, each beginning at a cache line.
struct Region {
    buffer: Buffer,
    words: usize,
    step: usize,
    pieces: usize,
}

impl Region {
    /// Creates and fills the sets of these members of the ring.
    fn new(members: std::ops::Range<usize>, words: usize, rng: &mut Pcg64Mcg) -> io::Result<Self> {
        let step = (words * size_of::<u64>()).next_multiple_of(LINE);
        let pieces = members.len();
        // A buffer also exists if there are no working sets.
        let mut buffer = Buffer::new((pieces * step).max(1), rng)?;
        for (piece, member) in buffer.chunks_exact_mut(step.max(1)).zip(members) {
            for (place, word) in piece.as_chunks_mut().0.iter_mut().zip(contents(member, words)) {
                *place = word.to_ne_bytes();
            }
        }
        Ok(Self { buffer, words, step, pieces })
    }

    /// Returns the sum of the set of a member; all members may share one set.
    #[inline]
    fn sum(&self, member: usize) -> u64 {
        let piece = &self.buffer[member % self.pieces * self.step..][..self.words * size_of::<u64>()];
        sum(piece)
    }
}

/// Returns the words of a member's working set.
fn contents(member: usize, words: usize) -> impl Iterator<Item = u64> {
    (0..words as u64).map(move |word| word + member as u64)
}

/// Returns the sum of the words of a member's working set.
fn sum_of_contents(member: usize, words: usize) -> u64 {
    contents(member, words).fold(0, u64::wrapping_add)
}

/// Words per iteration of the loop: one line, so that the overhead of the loop is small compared with the
/// loads.
const UNROLLED: usize = LINE / size_of::<u64>();

/// Loads every word of a piece that begins at a line, and returns their sum.
#[inline]
fn sum(piece: &[u8]) -> u64 {
    let (lines, rest) = piece.as_chunks::<LINE>();
    let mut sums = [0_u64; UNROLLED];
    for line in lines {
        for (word, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the word lies within the line, which is aligned; volatile, so that no load is removed.
            let word = unsafe { line.as_ptr().cast::<u64>().add(word).read_volatile() };
            *sum = sum.wrapping_add(word);
        }
    }
    let rest = rest.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    sums.into_iter().chain(rest).fold(0, u64::wrapping_add)
}

/// Returns the token after a member has handled it: adds one and a byte that depends on every bit of the sum,
/// so that the returned token shows whether every member received it and added up its set.
#[inline]
fn handled(token: u8, sum: u64) -> u8 {
    /// 2^64 over the golden ratio: every bit of the sum affects the highest byte (Knuth, volume 3, section
    /// 6.4).
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let [highest, ..] = sum.wrapping_mul(SPREAD).to_be_bytes();
    token.wrapping_add(highest).wrapping_add(1)
}

/// The ring of processes. This process is member 0.
struct Ring {
    here: End,
    region: Rc<Region>,
    own_sum: u64,
    /// The token 0 after all other members have handled it.
    others: u8,
    token: u8,
    partners: Vec<Partner>,
    done: u64,
}

impl Ring {
    fn new(
        processes: usize,
        cpu: usize,
        sets: Sets,
        region: Rc<Region>,
        rng: &mut Pcg64Mcg,
    ) -> io::Result<Self> {
        let words = sets.words();
        let mut partners = Vec::with_capacity(processes - 1);
        let (mut input, output) = one_pipe()?;
        for member in 1..processes {
            let (next, end_output) = one_pipe()?;
            let end = End::new(input, end_output);
            let seed = rng.random();
            partners.push(Partner::fork(cpu, || match sets {
                Sets::Shared { .. } => pass_on(&end, &region, member),
                Sets::Private { .. } => {
                    let mut rng = Pcg64Mcg::seed_from_u64(seed);
                    match Region::new(member..member + 1, words, &mut rng) {
                        Ok(own) => pass_on(&end, &own, member),
                        Err(_) => libc::EXIT_FAILURE,
                    }
                }
            })?);
            // Our copy of its end is closed before the next one is forked: if a member exits, all members
            // after it also exit, and this process reads the end of the stream.
            input = next;
        }
        let others = (1..processes).fold(0, |token, member| handled(token, sum_of_contents(member, words)));
        let own_sum = sum_of_contents(0, words);
        let here = End::new(input, output);
        Ok(Self { here, region, own_sum, others, token: 0, partners, done: 0 })
    }

    #[inline]
    fn lap(&mut self) -> io::Result<()> {
        self.token = self.token.wrapping_add(1);
        self.here.write(&[self.token])?;
        let mut came = [0];
        self.here.read(&mut came)?;
        if came[0] == self.token.wrapping_add(self.others) && self.region.sum(0) == self.own_sum {
            Ok(())
        } else {
            Err(wrong_token(self.token, came[0]))
        }
    }
}

#[cold]
fn wrong_token(token: u8, came: u8) -> io::Error {
    io::Error::other(format!("token {token} came back as {came}, or a working set was not added up"))
}

/// Runs a member: reads a token, adds up its set, and writes the token, until the stream ends.
fn pass_on(end: &End, region: &Region, member: usize) -> libc::c_int {
    let mut token = [0];
    while end.read(&mut token).is_ok() {
        token[0] = handled(token[0], region.sum(member));
        if end.write(&token).is_err() {
            break;
        }
    }
    0
}

/// A lap has one pass of the token per process, and an operation is one pass.
impl Operation for Ring {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations / self.granule() {
            self.lap()?;
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)
    }

    fn granule(&self) -> u64 {
        self.partners.len() as u64 + 1
    }
}

/// The same passes within this process: the same number of pipes and the same sets.
struct Within {
    pipes: Vec<End>,
    region: Rc<Region>,
    /// The sum of all words and tokens, and its expected value after one lap.
    sum: u64,
    expected: u64,
    done: u64,
}

impl Within {
    fn new(processes: usize, region: Rc<Region>) -> io::Result<Self> {
        let pipe = |_| one_pipe().map(|(input, output)| End::new(input, output));
        let pipes = (0..processes).map(pipe).collect::<io::Result<_>>()?;
        let sums = (0..processes).map(|member| sum_of_contents(member % region.pieces, region.words));
        let expected = sums.map(|sum| sum.wrapping_add(1)).fold(0, u64::wrapping_add);
        Ok(Self { pipes, region, sum: 0, expected, done: 0 })
    }
}

impl Operation for Within {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations / self.granule() {
            for (member, pipe) in self.pipes.iter().enumerate() {
                let mut token = [0];
                pipe.write(&[1])?;
                pipe.read(&mut token)?;
                self.sum = self.sum.wrapping_add(self.region.sum(member)).wrapping_add(token[0].into());
            }
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let laps = operations / self.granule();
        let sum = std::mem::take(&mut self.sum);
        expect_done(std::mem::take(&mut self.done), operations)?;
        if sum == self.expected.wrapping_mul(laps) {
            Ok(())
        } else {
            Err(io::Error::other("a token was not passed, or a working set was not added up"))
        }
    }

    fn granule(&self) -> u64 {
        self.pipes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_ring(processes: usize, sets: Sets) -> (Ring, Within) {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let pieces = if matches!(sets, Sets::Shared { .. }) { processes } else { 1 };
        let region = Rc::new(Region::new(0..pieces, sets.words(), &mut rng).unwrap());
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        let within = Within::new(processes, region.clone()).unwrap();
        (Ring::new(processes, cpu, sets, region, &mut rng).unwrap(), within)
    }

    #[test]
    fn the_token_goes_round_rings_of_any_length_and_working_set() {
        for (processes, words) in [(2, 0), (2, 1), (3, 13), (9, 512), (300, 0)] {
            for sets in [Sets::Shared { words }, Sets::Private { words }] {
                let (mut ring, mut within) = a_ring(processes, sets);
                let passes = 20 * processes as u64;
                for operation in [&mut ring as &mut dyn Operation, &mut within] {
                    operation.run(passes).unwrap();
                    operation.disarm(passes).unwrap();
                    operation.disarm(passes).unwrap_err();
                }
            }
        }
    }

    #[test]
    fn a_member_that_skips_its_working_set_is_an_error() {
        for words in [10, 2048] {
            let (mut ring, mut within) = a_ring(3, Sets::Shared { words });
            ring.others = (1..3).fold(0, |token, _| handled(token, 0));
            let error = ring.run(3).unwrap_err().to_string();
            assert!(error.contains("token 1 came back as"), "{error}");
            within.run(3).unwrap();
            within.sum -= 1;
            assert!(within.disarm(3).unwrap_err().to_string().contains("not added up"));
        }
    }

    #[test]
    fn the_exit_of_a_member_ends_the_lap() {
        let (mut ring, _) = a_ring(5, Sets::Private { words: 4 });
        drop(ring.partners.remove(2));
        let error = ring.run(5).unwrap_err().to_string();
        assert!(error.contains("moved no byte"), "{error}");
    }

    #[test]
    fn an_invalid_ring_is_rejected_with_the_valid_range() {
        let id = |text: &str| text.parse::<PrimitiveId>().unwrap();
        for text in [
            "process.context_switch{processes=1,cpus=same}",
            "process.context_switch{processes=3,cpus=different}",
        ] {
            let refusal = processes(&id(text)).unwrap_err().to_string();
            assert!(refusal.contains("must be between 2 and"), "{refusal}");
        }
        let many = id("process.context_switch{set=1GiB,processes=4,cpus=same}");
        let refusal = words_of_set(&many, 4).unwrap_err().to_string();
        assert!(refusal.contains("between 1B and 256MiB for 4 processes"), "{refusal}");
    }
}
