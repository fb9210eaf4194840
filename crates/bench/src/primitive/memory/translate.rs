//! Address translation: the cost that TLB misses and page table walks add to a load.
//!
//! With small pages, a few pages of memory are mapped repeatedly, so that each mapping reaches another of
//! their lines through a separate page. The same lines are then loaded in the same order through these many
//! pages and, as the baseline, through the first mapping only. Cache hits and misses are the same in both,
//! and the difference is translation. Within the reach of the first TLB the difference is zero: about half of
//! the samples are then negative and are rejected, and the others show how close to zero it is. Beyond 64
//! times that reach the baseline itself begins to miss the first TLB.
//!
//! Huge pages cannot be mapped this way. One line of each is loaded, and the baseline is the same number of
//! lines of the first one.

use std::io;
use std::rc::Rc;

use assay_quantity::{Key, PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::layout::{Buffer, LINE, huge_page};
use crate::primitive::kit::chain::{Chain, Chase};
use crate::primitive::kit::order::Order;
use crate::primitive::kit::working_set::WorkingSet;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["memory.translate{set=64MiB}"],
        full: &[
            "memory.translate{set=64KiB|96KiB|128KiB|192KiB|256KiB|384KiB|512KiB|768KiB|1MiB|1536KiB|2MiB|\
             3MiB|4MiB|6MiB|8MiB|12MiB|16MiB|24MiB|32MiB|48MiB|64MiB|128MiB|256MiB}",
        ],
        cost: Per::Operation,
        calls: &[],
        about: "translation of a load's address: dependent loads of one line per 4 KiB page, less loads of \
                the same lines in the same order through few pages",
        source: "lmbench 3, tlb, with the cost reported and the same lines on both sides",
        prepare: translate,
    },
    Row {
        quick: &[],
        full: &["memory.translate{set=128MiB|256MiB|512MiB,pages=huge}"],
        cost: Per::Operation,
        calls: &[],
        about: "translation of a load's address: dependent loads of one line per huge page, less loads of \
                the same number of lines in one huge page",
        source: "lmbench 3, tlb, with the cost reported and the same lines on both sides",
        prepare: translate,
    },
];

/// One load per page, in random order, less one from few pages.
fn translate(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let bytes = id.number(Key::Set).unwrap_or(0);
    match id.word(Key::Pages) {
        "huge" => of_huge_pages(WorkingSet::of_bytes(Size(bytes), setting)?, setting),
        _ => of_small_pages(Size(bytes), setting),
    }
}

fn of_small_pages(set: Size, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let page = rustix::param::page_size();
    let lines_per_page = page / LINE;
    // Memory is required for one line per page, and for the page tables, which are smaller.
    let lines = WorkingSet::of_bytes(Size(set.bytes() / lines_per_page as u64), setting)?;
    let pages = lines.bytes / LINE;
    let frames = pages.div_ceil(lines_per_page);
    let order = Order::random(lines.places(LINE)?, &mut setting.rng);
    let buffer = Rc::new(Buffer::aliased(frames * page, pages.div_ceil(frames))?);
    // Element i is line i / frames of frame i % frames, through its own page or through that of the first
    // mapping.
    let apart = move |element: usize| element * page + element / frames * LINE;
    let together = move |element: usize| element % frames * page + element / frames * LINE + SECOND_WORD;
    difference(&buffer, &order, apart, together)
}

fn of_huge_pages(set: WorkingSet, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let page = huge_page()?;
    let order = Order::random(set.places(page)?, &mut setting.rng);
    let buffer = Rc::new(Buffer::huge(set.bytes, &mut setting.rng)?);
    // Lines of neighbouring pages map to neighbouring sets of the caches, like the lines of the baseline.
    let apart = move |element: usize| element * page + element * LINE % (page / 2);
    let together = move |element: usize| page / 2 + element * LINE % (page / 2);
    difference(&buffer, &order, apart, together)
}

/// Offset of the baseline's pointers in the lines whose first word contains the other pointers.
const SECOND_WORD: usize = size_of::<usize>();

/// Loads of the elements in this order at the addresses `apart`, less loads of them at the addresses
/// `together`.
fn difference(
    buffer: &Rc<Buffer>,
    order: &Order,
    apart: impl Fn(usize) -> usize + 'static,
    together: impl Fn(usize) -> usize + 'static,
) -> Result<Prepared, Refusal> {
    Ok(Prepared {
        operation: Box::new(chase(buffer, order, apart)?),
        baseline: Some(Box::new(chase(buffer, order, together)?)),
        sharing: Sharing::Alone,
    })
}

fn chase<P: Fn(usize) -> usize>(buffer: &Rc<Buffer>, order: &Order, place: P) -> io::Result<Chase<1, P>> {
    let length = order.length();
    Chase::along(Chain::link(Rc::clone(buffer), order.clone(), length, 1, place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Operation;

    fn prepared(id: &str) -> Result<Prepared, Refusal> {
        let mut setting =
            crate::primitive::kit::working_set::tests::setting(crate::platform::describe::caches());
        translate(&id.parse().unwrap(), &mut setting)
    }

    fn goes_round(operation: &mut dyn Operation) {
        for length in [1, 2, 64, 300, 5] {
            operation.run(length).unwrap();
            operation.disarm(length).unwrap();
        }
        assert!(operation.disarm(1).is_err());
    }

    /// Also if the number of pages is not a multiple of the number of lines of a page.
    #[test]
    fn the_lines_are_linked_through_separate_pages_and_through_few_pages() {
        for set in ["16KiB", "64KiB", "256KiB", "260KiB", "2MiB"] {
            let mut prepared = prepared(&format!("memory.translate{{set={set}}}")).unwrap();
            goes_round(prepared.operation.as_mut());
            goes_round(prepared.baseline.unwrap().as_mut());
        }
    }

    #[test]
    fn huge_pages_are_linked_in_the_same_way_or_rejected_with_advice() {
        match prepared("memory.translate{set=16MiB,pages=huge}") {
            Ok(mut prepared) => {
                goes_round(prepared.operation.as_mut());
                goes_round(prepared.baseline.unwrap().as_mut());
            }
            Err(refusal) => assert!(refusal.to_string().contains("huge pages"), "{refusal}"),
        }
    }

    #[test]
    fn fewer_than_four_pages_are_rejected() {
        let refusal = prepared("memory.translate{set=12KiB}").err().unwrap().to_string();
        assert!(refusal.contains("fewer than four places"), "{refusal}");
    }
}
