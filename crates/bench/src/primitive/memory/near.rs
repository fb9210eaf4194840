//! The cost of a load immediately after a load from a nearby address: almost nothing within the same line,
//! and a miss in another line. Plotted over the distance it shows the length of a line.
//!
//! lmbench's `line` searches for the stride beyond which loads do not cost more, but processors recognise
//! strides and prefetch. Here the first load of each pair is from a random address, and only the second is
//! near it.

use std::io;
use std::rc::Rc;

use assay_quantity::{Key, PrimitiveId};

use super::load::of_words;
use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::layout::{Buffer, LINE, PAGE};
use crate::primitive::kit::chain::{Chain, Chase};
use crate::primitive::kit::order::Order;
use crate::primitive::kit::working_set::{Course, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    // Two lines in each 1 KiB of the set: more than the first cache level holds, and less than the second.
    quick: &[],
    full: &["memory.load_near{set=1MiB,stride=8B|16B|32B|64B|128B|256B|512B}"],
    cost: Per::Operation,
    calls: &[],
    about: "load from an address that is `stride` bytes after that of the previous load, which was random \
            (the baseline): cheap within a line, a miss beyond",
    source: "lmbench 3, line, without a stride that prefetchers follow",
    prepare: load_near,
}];

/// A pair of loads less its first load.
fn load_near(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Chase)?;
    let stride = of_words(id.number(Key::Stride).unwrap_or(0))?;
    let block = block(stride);
    let pairs = set.places(block)?;
    let firsts = move |element: usize| first_of(element, block);
    let both = move |element: usize| first_of(element / 2, block) + element % 2 * stride;
    let order = Order::pairs(pairs, &mut setting.rng);
    let operation = Chase::<1, _>::along(chain(set, order, both, setting)?)?;
    let order = Order::random(pairs, &mut setting.rng);
    let baseline = Chase::<1, _>::along(chain(set, order, firsts, setting)?)?;
    Ok(Prepared {
        operation: Box::new(Twice(operation)),
        baseline: Some(Box::new(baseline)),
        sharing: Sharing::Alone,
    })
}

/// Returns the number of bytes that contain one pair.
fn block(stride: usize) -> usize {
    (2 * stride).next_power_of_two().max(PAGE / 4)
}

/// Pairs of one page begin at the same line of their blocks, those of the next page at the next line, so that
/// most sets of a cache are used.
fn first_of(pair: usize, block: usize) -> usize {
    let blocks_per_page = (PAGE / block).max(1);
    pair * block + pair / blocks_per_page % (block / 2 / LINE) * LINE
}

fn chain<P: Fn(usize) -> usize>(
    set: WorkingSet,
    order: Order,
    place: P,
    setting: &mut Setting,
) -> io::Result<Chain<P>> {
    let buffer = Rc::new(Buffer::new(set.bytes, &mut setting.rng)?);
    let length = order.length();
    Ok(Chain::link(buffer, order, length, 1, place))
}

/// An operation that consists of two others.
struct Twice<O>(O);

impl<O: Operation> Operation for Twice<O> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.0.run(2 * operations)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.0.disarm(2 * operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pairs_lie_in_blocks_of_their_own_the_second_a_stride_after_the_first(
            words in 1usize..2000,
            pair in 0usize..1000,
        ) {
            let stride = words * size_of::<usize>();
            let block = block(stride);
            let first = first_of(pair, block);
            prop_assert!(first >= pair * block && first.is_multiple_of(LINE));
            prop_assert!(first + stride + size_of::<usize>() <= (pair + 1) * block);
        }
    }

    #[test]
    fn a_pair_is_two_loads_and_a_missing_load_is_detected() {
        let mut setting =
            crate::primitive::kit::working_set::tests::setting(crate::platform::describe::caches());
        let id = "memory.load_near{set=64KiB,stride=64B}".parse().unwrap();
        let Prepared { mut operation, baseline, .. } = load_near(&id, &mut setting).unwrap();
        for length in [1, 2, 64, 100] {
            operation.run(length).unwrap();
            operation.disarm(length).unwrap();
        }
        assert!(operation.disarm(1).is_err());
        assert!(baseline.is_some());
    }
}
