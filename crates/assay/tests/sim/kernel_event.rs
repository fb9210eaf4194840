//! `assay reflect watch` counts functions of a kernel that can be probed, which that of the host may not be.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::guest::{copy_program, sim};

/// The machine is watched while links are made, and a shell while it opens a file for each line of a pipe,
/// until all of these calls are counted.
const COMMAND: &str = r#"
    watch='tools/ld-linux-x86-64.so.2 --library-path tools tools/assay reflect watch'
    $watch --productivity kprobe:do_symlinkat --event kprobe:no_such_function
    mkfifo lines
    while read line; do : >file; done <lines &
    shell=$!
    exec 3>lines
    $watch --lines --event kprobe:do_symlinkat >machine 3>&- &
    machine=$!
    $watch --lines --event kprobe:do_sys_openat2 -p $shell >process 3>&- &
    process=$!
    counted() { grep -o '\(do_symlinkat\|do_sys_openat2\)":[0-9]*' $1 | awk -F: '{ sum += $2 } END { print sum + 0 }'; }
    until_counted() { while kill -0 $1 && [ $(counted $2) -lt 7 ]; do sleep 0.1; done; }
    for watcher in machine process; do
        eval pid=\$$watcher
        while kill -0 $pid && ! [ -s $watcher ]; do sleep 0.1; done
    done
    for i in $(seq 7); do ln -s to link$i; echo $i >&3; done
    until_counted $machine machine
    until_counted $process process
    kill $machine
    exec 3>&-
    wait
    cat machine process
    mkdir traces && mount -t tracefs none traces && wc -l traces/kprobe_events"#;

#[test]
fn calls_of_a_function_of_the_kernel_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let tools = directory.path().join("tools");
    copy_program(Path::new(env!("CARGO_BIN_EXE_assay")), &tools);
    // Without its debug information, it is a quarter of the size.
    assert!(Command::new("strip").arg(tools.join("assay")).status().unwrap().success());
    let arguments = ["--guest-command", COMMAND, "--copy", "tools", "--observe", "nothing", "--limit", "5m"];
    let said = sim(directory.path(), &arguments);
    let refused = "cannot count kprobe:no_such_function: the kernel has no such function";
    assert!(said.messages.contains(refused), "{said:?}");
    let lines = said.messages.lines().filter(|line| line.starts_with("{\"counts"));
    let readings: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in ["kprobe:do_symlinkat", "kprobe:do_sys_openat2"] {
        let counts = readings.iter().filter_map(|reading| reading["counts"][event].as_u64());
        assert_eq!(counts.sum::<u64>(), 7, "{event}: {said:?}");
    }
    assert!(said.messages.ends_with("0 traces/kprobe_events\n"), "{said:?}");
}
