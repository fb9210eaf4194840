//! Latency of memory by distance: the load of [`super::load`] by one processor from the memory of one node.

use std::fs;
use std::io;

use assay_process::cpus::{parse_list, pin};
use assay_quantity::{Key, PrimitiveId, Size};

use super::load::Lap;
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::platform::layout::{Buffer, PAGE};
use crate::primitive::kit::processor;
use crate::primitive::kit::working_set::{Course, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &[],
    full: &["memory.load_node{from=cpu,to=node}"],
    cost: Per::Operation,
    calls: &[],
    about: "load by processor `from` from memory of node `to`, whose address is the result of the previous \
            load; lines in random order. The location of every page is verified (`move_pages`). Unavailable \
            on a machine with one node",
    source: "own: the matrix of distances, as in MLC",
    prepare: load_node,
}];

/// The kernel's list of the nodes that have memory.
const NODES: &str = "/sys/devices/system/node/has_memory";

/// One dependent load by processor `from` from memory of node `to`.
fn load_node(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let nodes = fs::read_to_string(NODES).ok().and_then(|list| parse_list(&list)).unwrap_or_default();
    if nodes.len() < 2 {
        return Err(Refusal::Unavailable(format!(
            "this machine has one memory node ({NODES}), so that all memory is equally distant"
        )));
    }
    let cpu = processor::named(id, Key::From, setting)?;
    let node = id.number(Key::To).and_then(|node| usize::try_from(node).ok());
    let node = node.filter(|node| nodes.contains(node)).ok_or_else(|| {
        Refusal::Unavailable(format!(
            "to of {id} is not one of the memory nodes {nodes:?}; specify one of them"
        ))
    })?;
    pin(cpu)?;
    setting.cpu = cpu;
    let set = WorkingSet::of_level("dram", setting, Course::Chase)?;
    let lap = from_node(node, || Lap::of_lines(set, setting))??;
    expect_on_node(&lap.buffer, node)?;
    Ok(Prepared::alone(lap.chase::<1>()?))
}

/// Calls `then` with a memory policy that allocates all of its memory on one node.
fn from_node<T>(node: usize, then: impl FnOnce() -> T) -> io::Result<T> {
    let mut mask = [0_u64; NODES_MAX / 64];
    let word = mask
        .get_mut(node / 64)
        .ok_or_else(|| io::Error::other(format!("node {node} exceeds the supported maximum")))?;
    *word |= 1 << (node % 64);
    set_policy(libc::MPOL_BIND, &mask)?;
    let result = then();
    set_policy(libc::MPOL_DEFAULT, &[])?;
    Ok(result)
}

/// More nodes than any kernel is configured for.
const NODES_MAX: usize = 1024;

fn set_policy(mode: libc::c_int, mask: &[u64]) -> io::Result<()> {
    // The kernel takes the number of bits plus one.
    let bits = if mask.is_empty() { 0 } else { mask.len() * 64 + 1 };
    let pointer = if mask.is_empty() { std::ptr::null() } else { mask.as_ptr() };
    // SAFETY: the pointer and the length describe the mask, which outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) };
    check("set_mempolicy", result).map(drop)
}

/// Checks that all pages of a buffer are on the node. An ignored policy would measure the wrong distance.
fn expect_on_node(buffer: &Buffer, node: usize) -> io::Result<()> {
    // The buffer begins and ends within pages, so that its last byte may be in an additional page.
    let firsts = buffer.chunks(PAGE).map(<[u8]>::as_ptr);
    let pages: Vec<*const u8> = firsts.chain(buffer.last().map(std::ptr::from_ref)).collect();
    let mut nodes = vec![-1_i32; pages.len()];
    // SAFETY: both arrays have the given length; without target nodes no page is moved.
    let result = unsafe {
        let none = std::ptr::null::<libc::c_int>();
        libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), none, nodes.as_mut_ptr(), 0)
    };
    check("move_pages", result)?;
    let elsewhere = nodes.iter().filter(|on| usize::try_from(**on) != Ok(node)).count();
    if elsewhere == 0 {
        Ok(())
    } else {
        let all = Size((pages.len() * PAGE) as u64);
        Err(io::Error::other(format!("{elsewhere} pages of {all} are not on node {node}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn memory_is_allocated_on_the_requested_node_and_another_node_is_detected() {
        let nodes = parse_list(&fs::read_to_string(NODES).unwrap()).unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for node in &nodes {
            let buffer = from_node(*node, || Buffer::new(20 * PAGE + 7, &mut rng)).unwrap().unwrap();
            expect_on_node(&buffer, *node).unwrap();
            let wrong = expect_on_node(&buffer, node + 1).unwrap_err().to_string();
            assert!(wrong.contains("are not on node"), "{wrong}");
        }
    }

    #[test]
    fn a_missing_node_is_an_error() {
        let error = from_node(NODES_MAX - 1, || ()).unwrap_err().to_string();
        assert!(error.contains("set_mempolicy"), "{error}");
        assert!(from_node(NODES_MAX, || ()).is_err());
    }
}
