//! The shipped workload files, for the tests that start their servers.

use std::path::Path;

use assay_workload::{Program, ServerProgram, Workload};

pub fn shipped(name: &str) -> Workload {
    let workloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads");
    Workload::read(&workloads.join(name).with_extension("toml")).unwrap()
}

pub fn program(workload: &mut Workload) -> &mut ServerProgram {
    match &mut workload.program {
        Program::Server(server) => server,
        Program::Command(_) => panic!("{} is a command", workload.name),
    }
}
