//! What is mapped where a page fault occurs, and the memory of new processes.

use std::collections::HashMap;

use assay_process::Exit;
use assay_trace::{Area, Event, Memory};

use crate::support::{EXERCISE, record};

#[test]
fn the_area_of_a_page_fault_is_what_is_mapped_at_its_address() {
    let recording = record(&[EXERCISE, "areas"]);
    assert_eq!(recording.exit, Exit::Status(0));
    let kinds = [Area::Anonymous, Area::PrivateFile, Area::Shared];
    let mut due: HashMap<u64, Vec<Area>> = HashMap::new();
    for number in 0..3000 {
        let areas = due.entry(0x2000_0000_0000 + number as u64 * 0x2000).or_default();
        areas.push(kinds[number % 3]);
        if number % 5 == 0 {
            areas.push(kinds[(number + 1) % 3]);
        }
    }
    due.insert(0x7fff_ffff_e000, vec![Area::Nothing]);
    let mut found: HashMap<u64, Vec<Area>> = HashMap::new();
    let mut others = Vec::new();
    for record in &recording.records {
        match record.event {
            Event::PageFault { address, area: Some(area), user: true, .. } if due.contains_key(&address) => {
                found.entry(address).or_default().push(area);
            }
            Event::PageFault { area, .. } => others.push(area),
            _ => {}
        }
    }
    let wrong: Vec<_> = due
        .iter()
        .map(|(address, areas)| (address, areas, found.get(address)))
        .filter(|(_, areas, found)| *found != Some(areas))
        .collect();
    assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), due.len(), &wrong[..wrong.len().min(10)]);
    // The program's own memory: this kernel has areas to find.
    assert!(others.contains(&Some(Area::PrivateFile)) && !others.contains(&None), "{others:?}");
}

#[test]
fn a_fork_has_a_copy_of_the_memory_of_its_size_and_a_spawned_program_has_none() {
    let recording = record(&[EXERCISE, "forks"]);
    assert_eq!(recording.exit, Exit::Status(0));
    let memories: Vec<_> = recording
        .records
        .iter()
        .filter_map(|record| match record.event {
            Event::Fork { memory, .. } => Some(memory),
            _ => None,
        })
        .collect();
    let [Some(Memory::Copied { anonymous_bytes }), Some(Memory::Borrowed)] = memories[..] else {
        panic!("{memories:?}")
    };
    // What the processors have not yet added to the count is missing.
    assert!((24 << 20..40 << 20).contains(&anonymous_bytes), "{anonymous_bytes}");
}
