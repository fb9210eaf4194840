//! A program that keeps one processor busy and counts its units of work, to see what it does to others:
//!
//!     competitor copy /dev/shm/a        # copies 64 MiB from one place in memory to another
//!     competitor cache /dev/shm/b       # follows pointers through three quarters of a level-2 cache
//!     competitor large /dev/shm/c       # follows pointers through four level-2 caches
//!     competitor share /dev/shm/d       # adds to a number to which others add, in /dev/shm/shared
//!     competitor compute /dev/shm/e     # multiplies in registers
//!
//! It ends when it is killed, or with the program that started it.

use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use assay_reflect::advice::{Advice, Class};
use assay_reflect::progress::Progress;
use clap::{Parser, ValueEnum};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Bytes that are copied over and over: more than the caches of most processors hold.
const MEMORY: usize = 64 << 20;

/// Bytes of a unit.
const BLOCK: usize = 64 << 10;

/// Size of a cache line.
const LINE: usize = 64;

/// Pointers of a unit.
const POINTERS: u64 = 2_000;

/// Additions of a unit.
const ADDITIONS: u64 = 10_000;

/// Multiplications of a unit.
const MULTIPLICATIONS: u64 = 100_000;

/// Keeps a processor busy and counts units of work.
#[derive(Debug, Parser)]
struct Arguments {
    /// What it does.
    kind: Kind,
    /// The progress counter; it is created if it does not exist.
    progress: PathBuf,
    /// Advise that it is a batch job.
    #[arg(long)]
    batch: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Copies more memory than caches hold.
    Copy,
    /// Depends on what it left in its cache.
    Cache,
    /// Depends on what it left in the last-level cache.
    Large,
    /// Adds to memory that others write, as those do that compete for a lock.
    Share,
    /// Computes without memory.
    Compute,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let progress = Progress::create(&arguments.progress)?;
    let unit = match arguments.kind {
        Kind::Copy => "block",
        Kind::Cache | Kind::Large | Kind::Share | Kind::Compute => "round",
    };
    progress.advise(&Advice {
        unit: unit.to_owned(),
        class: if arguments.batch { Class::Batch } else { Class::Interactive },
        ..Advice::default()
    })?;
    match arguments.kind {
        Kind::Copy => copy(&progress),
        Kind::Cache => chase(&progress, level_2()? / 4 * 3),
        Kind::Large => chase(&progress, level_2()? * 4),
        Kind::Share => share(&progress, &arguments.progress.with_file_name("shared")),
        Kind::Compute => compute(&progress),
    }
}

fn copy(progress: &Progress) -> ! {
    let (from, mut to) = (vec![1_u8; MEMORY], vec![0_u8; MEMORY]);
    loop {
        for (from, to) in from.chunks_exact(BLOCK).zip(to.chunks_exact_mut(BLOCK)) {
            to.copy_from_slice(black_box(from));
            black_box(to);
            progress.finished(1);
        }
    }
}

/// Size of the level-2 cache of the first processor.
fn level_2() -> Result<usize, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size")?;
    let kib: usize = text.trim().strip_suffix('K').ok_or("the size of the cache is not in KiB")?.parse()?;
    Ok(kib << 10)
}

/// Each line has the number of the next one, in random order, so that the processor cannot fetch it before.
fn chase(progress: &Progress, bytes: usize) -> ! {
    let mut order: Vec<usize> = (0..bytes / LINE).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(1));
    let mut lines = vec![[0_usize; LINE / size_of::<usize>()]; order.len()];
    for (place, line) in order.iter().enumerate() {
        lines[*line][0] = order[(place + 1) % order.len()];
    }
    let mut line = 0;
    loop {
        for _ in 0..POINTERS {
            line = black_box(lines[line][0]);
        }
        progress.finished(1);
    }
}

/// Returns only with an error.
fn share(progress: &Progress, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.set_len(u64::try_from(LINE)?)?;
    // SAFETY: the file is memory of this program's runs, none of which shortens it.
    let mut shared = unsafe { memmap2::MmapMut::map_mut(&file)? };
    // SAFETY: a mapping begins at a page, and holds a number; all who use it do so by atomic operations.
    let number = unsafe { AtomicU64::from_ptr(shared.as_mut_ptr().cast()) };
    loop {
        for _ in 0..ADDITIONS {
            number.fetch_add(1, Ordering::Relaxed);
        }
        progress.finished(1);
    }
}

fn compute(progress: &Progress) -> ! {
    // The generator of Knuth's MMIX: each step needs the result of the one before.
    let mut state = 1_u64;
    loop {
        for _ in 0..MULTIPLICATIONS {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005))
                .wrapping_add(1_442_695_040_888_963_407);
        }
        progress.finished(1);
    }
}
