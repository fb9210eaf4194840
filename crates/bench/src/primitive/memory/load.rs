//! The latency of a load by the location of its working set: lines in random order, strides, huge pages, and
//! several concurrent chains.
//!
//! The order is random because prefetchers follow any other order: with lmbench's default stride, the same
//! memory has an eighth of its latency in random order. Address translation is part of a load and is not
//! subtracted; [`super::translate`] measures it separately.

use std::io;
use std::rc::Rc;

use assay_quantity::{Key, PrimitiveId};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::layout::{Buffer, LINE};
use crate::primitive::kit::chain::{Chain, Chase, Touch};
use crate::primitive::kit::once;
use crate::primitive::kit::order::Order;
use crate::primitive::kit::working_set::{Course, Residence, WorkingSet, odd};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["memory.load{level=*}"],
        full: &[
            "memory.load{set=4KiB|6KiB|8KiB|12KiB|16KiB|24KiB|32KiB|48KiB|64KiB|96KiB|128KiB|192KiB|256KiB|\
             384KiB|512KiB|768KiB|1MiB|1536KiB|2MiB|3MiB|4MiB|6MiB|8MiB|12MiB|16MiB|24MiB|32MiB|48MiB|64MiB|\
             96MiB|128MiB|192MiB|256MiB}",
        ],
        cost: Per::Operation,
        calls: &[],
        about: "load whose address is the result of the previous load, one per line, lines in random order; \
                address translation included",
        source: "lmbench 1996, section 6.2, in random order; lmbench 3, lat_mem_rd",
        prepare: load,
    },
    Row {
        quick: &[],
        full: &[
            "memory.load{level=dram,pages=huge}",
            // Beyond the first cache levels, where small pages begin to miss the TLB.
            "memory.load{set=1MiB|2MiB|4MiB|8MiB|16MiB|32MiB|64MiB|128MiB|256MiB,pages=huge}",
        ],
        cost: Per::Operation,
        calls: &[],
        about: "load whose address is the result of the previous load, lines in random order, in huge pages, \
                which `/proc/self/smaps` must show; otherwise unavailable",
        source: "lmbench 1996, section 6.2, in random order; lmbench 3, lat_mem_rd",
        prepare: load,
    },
    Row {
        quick: &[],
        full: &["memory.load{set=64MiB,stride=64B|128B|256B|512B|1KiB|4KiB}"],
        cost: Per::Operation,
        calls: &[],
        about: "load whose address is the result of the previous load, in ascending order with this stride: \
                the effect of prefetchers",
        source: "lmbench 1996, section 6.2; lmbench 3, lat_mem_rd",
        prepare: load,
    },
    Row {
        quick: &["memory.load{level=dram,chains=8}"],
        full: &["memory.load{level=dram,chains=1|2|4|8|16}"],
        cost: Per::Operation,
        calls: &[],
        about: "one load, with this number of independent chains (1 to 16) followed concurrently; the ratio \
                of the cost of one chain to this cost per load is the parallelism of memory",
        source: "lmbench 3, par_mem",
        prepare: load,
    },
];

/// One load whose address is the value of the previous load in its chain.
fn load(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Chase)?;
    let buffer = match id.word(Key::Pages) {
        "huge" => Buffer::huge(set.bytes, &mut setting.rng)?,
        _ => Buffer::new(set.bytes, &mut setting.rng)?,
    };
    let (order, spacing) = match id.number(Key::Stride) {
        None => (Order::random(set.places(LINE)?, &mut setting.rng), LINE),
        Some(stride) => {
            let spacing = of_words(stride)?;
            (Order::Ascending { length: set.places(spacing)? }, spacing)
        }
    };
    let chains = id.number(Key::Chains).unwrap_or(1);
    Lap { set, buffer: Rc::new(buffer), order, spacing }.followed_by(chains)
}

/// Returns a stride in bytes. Fails unless it is a positive multiple of a word.
pub(super) fn of_words(stride: u64) -> Result<usize, Refusal> {
    usize::try_from(stride)
        .ok()
        .filter(|stride| *stride > 0 && stride.is_multiple_of(size_of::<usize>()))
        .ok_or_else(|| {
            Refusal::Unavailable(format!(
                "a stride of {stride} B is not a multiple of whole words; use for example 8B or 64B"
            ))
        })
}

/// A working set that is traversed.
pub(super) struct Lap {
    pub(super) set: WorkingSet,
    pub(super) buffer: Rc<Buffer>,
    pub(super) order: Order,
    /// Bytes between one element and the next in memory.
    pub(super) spacing: usize,
}

impl Lap {
    /// The lines of a working set in random order.
    pub(super) fn of_lines(set: WorkingSet, setting: &mut Setting) -> Result<Self, Refusal> {
        let buffer = Rc::new(Buffer::new(set.bytes, &mut setting.rng)?);
        let order = Order::random(set.places(LINE)?, &mut setting.rng);
        Ok(Self { set, buffer, order, spacing: LINE })
    }

    /// Links the working set into the given number of chains. For a set in memory, links only the part that a
    /// sample reaches, and fills the caches with the rest, loaded or modified.
    pub(super) fn linked(self, chains: u64, others: Touch) -> Chain<impl Fn(usize) -> usize> {
        let Self { set, buffer, order, spacing } = self;
        let place = move |element| element * spacing;
        if set.residence == Residence::Found {
            let length = order.length();
            return Chain::link(buffer, order, length, chains, place);
        }
        let half = odd(order.length() / 2);
        let lap = match order {
            Order::Ascending { .. } => half,
            Order::Random(_) | Order::Pairs(_) => odd(once::LAP * chains).min(half),
        };
        let fitting = set.last_cache.bytes() / spacing.min(LINE) as u64;
        Chain::link(buffer, order, lap, chains, place).left_to_others(fitting, others)
    }

    /// Loads along the given number of chains. The number is a constant of each loop, so that the loads of
    /// all chains are in flight together and no inner loop over the chains remains.
    fn followed_by(self, chains: u64) -> Result<Prepared, Refusal> {
        macro_rules! one_of {
            ($($number:literal)*) => {
                match chains {
                    $($number => Ok(Prepared::alone(self.chase::<$number>()?)),)*
                    _ => Err(Refusal::Unavailable(format!(
                        "chains={chains} is not between 1 and 16; processors do not have registers for more"
                    ))),
                }
            };
        }
        one_of!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
    }

    pub(super) fn chase<const K: usize>(self) -> io::Result<Chase<K, impl Fn(usize) -> usize>> {
        Chase::along(self.linked(K as u64, Touch::Load))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_whole_words() {
        assert_eq!(of_words(24).unwrap(), 24);
        for stride in [0, 4, 12, 63] {
            assert!(of_words(stride).unwrap_err().to_string().contains("whole words"), "{stride}");
        }
    }
}
