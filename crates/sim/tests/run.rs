//! Runs as files: what is written reads back the same, and what is wrong is named.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use assay_sim::{
    Attribution, Counts, Event, Kind, Moment, Observed, Plan, Routines, Run, Service, Setup, Task,
};
use expect_test::{expect, expect_file};

fn named(name: &str) -> String {
    name.to_owned()
}

/// Annotations with each kind of service, of a machine whose clock counts instructions.
fn plan() -> Plan {
    let mut plan = Plan::empty();
    plan.timed = true;
    plan.services = vec![
        Service::Exception(named("page_fault")),
        Service::Interrupt(named("apic_timer_interrupt")),
        Service::Softirq(named("softirq/timer")),
        Service::CompatibleCall(named("int80_emulation")),
        Service::Function(named("vfs_read")),
    ];
    let symbols = [("vfs_read", 1 << 63), ("copy_page", 1 << 63 | 64)];
    plan.routines = Routines::new(&symbols.map(|(name, address)| (named(name), vec![address])).into());
    plan.gaps = vec![named("Something cannot be observed.")];
    plan
}

/// A run of each kind of service.
fn run() -> Run {
    let plan = plan();
    let mut name = [0; 16];
    name[..3].copy_from_slice(b"cat");
    let cat = Task { address: 1, process: 7, name, kind: Kind::Program };
    let worker = Task { address: 2, process: 2, name: [b'w'; 16], kind: Kind::Kernel };
    let idle = Task { address: 3, process: 0, name: [b'i'; 16], kind: Kind::Kernel };
    let mut attribution = Attribution::new(&plan);
    let mut counts = Counts::default();
    let mut profile = None;
    for event in [
        Event::Begin,
        Event::New(cat),
        Event::Switch { state: 0, to: cat },
        Event::ReturnToProgram,
        Event::Call(0),
        Event::Function { service: 4, frame: 9 },
        Event::Trap { service: 0, frame: 7 },
        Event::ReturnToKernel { frame: 7 },
        Event::Trap { service: 1, frame: 6 },
        Event::Function { service: 2, frame: 5 },
        Event::Return { frame: 5 },
        Event::ReturnToKernel { frame: 6 },
        Event::Return { frame: 9 },
        Event::Switch { state: 1, to: worker },
        Event::Switch { state: 1, to: idle },
        Event::Halt,
        Event::Clock { time_ns: 1000 },
        Event::Wake { task: 1, state: 1, of: 1 },
        Event::Switch { state: 0, to: cat },
        Event::ReturnToProgram,
        Event::Trap { service: 3, frame: 8 },
        Event::ReturnToProgram,
        Event::End,
    ] {
        counts.user += 1;
        counts.kernel += 10;
        attribution.take_routines(&[0, 6, 3, 1].map(|of_10| of_10 * counts.user));
        profile = attribution.take(Moment::of(counts), event);
    }
    let setup = Setup {
        command: Some(named("cat file")),
        copies: vec![named("file")],
        kernel: named("6.12"),
        root: Some(named("debian")),
        memory_mib: 512,
        deterministic: true,
        observed: Observed::Services,
        functions: vec![named("vfs_read")],
    };
    Run { setup, status: 3, profile: profile.unwrap() }
}

#[test]
fn a_run_is_written_as_documented_and_reads_back_the_same() {
    let json = run().to_json();
    expect_file!["golden/run.sim.json"].assert_eq(&json);
    assert_eq!(Run::from_json(&json).unwrap(), run());
}

/// What is changed in a right run, and to what.
const CHANGES: [(&str, &str); 22] = [
    ("assay.simulation/2\"", "assay.simulation/9\",\"date\":1"),
    ("\"command\":\"cat file\",", ""),
    ("\"timeline\"", "\"time\""),
    ("\"deterministic\":true", "\"deterministic\":false"),
    ("\"status\"", "\"state\""),
    ("\"observed\":\"services\"", "\"observed\":\"all\""),
    ("\"user\":22", "\"user\":23"),
    ("\"copy_page\":66", "\"copy_page\":67"),
    ("{\"copy_page\":66,\"modules and generated code\":22,\"vfs_read\":132}", "{}"),
    ("\"calls\":1,\"instructions\":20", "\"calls\":1,\"instructions\":21"),
    ("\"calls\":1,\"instructions\":20", "\"calls\":9223372036854775807,\"instructions\":20"),
    ("\"calls\":1,\"running_ns\"", "\"calls\":18446744073709551615,\"running_ns\""),
    ("\"blocked_ns\":0", "\"blocked_ns\":9223372036854775807"),
    ("{\"calls\":0,\"running_ns\":0,\"blocked_ns\":0,\"descheduled_ns\":0}", "null"),
    ("\"total_ns\":1055", "\"total_ns\":812"),
    ("\"interval_ns\":1024", "\"interval_ns\":1023"),
    ("\"interval_ns\":1024", "\"interval_ns\":1025"),
    ("\"idle_ns\":", "\"idle_ns\":1"),
    ("\"kernel_ns\":151,\"idle_ns\":853", "\"kernel_ns\":200,\"idle_ns\":804"),
    ("\"intervals\":[", "\"intervals\":[{\"user_ns\":0,\"kernel_ns\":0,\"idle_ns\":0},"),
    ("\"unknown_halts\":0", "\"unknown_halts\":9223372036854775808"),
    ("\"switches\":4", "\"switches\":9223372036854775808"),
];

#[test]
fn what_is_wrong_with_a_run_is_named() {
    let whole = run().to_json();
    let mut complaints = String::new();
    for (was, is) in CHANGES {
        assert!(whole.contains(was), "{was} is not in {whole}");
        let error = Run::from_json(&whole.replacen(was, is, 1)).unwrap_err();
        complaints += &format!("{error}\n");
    }
    // All instructions are 220 more than the largest sum.
    let large = whole.replacen("\"user\":22", "\"user\":9223372036854775807", 1);
    let large = large.replacen("\"user\":2,", "\"user\":9223372036854775787,", 1);
    for text in [&large, &whole[..whole.len() / 2]] {
        complaints += &format!("{}\n", Run::from_json(text).unwrap_err());
    }
    expect![[r#"
        its format is 'assay.simulation/9', but 'assay.simulation/2' is required; if the file is newer, update assay
        missing field `command` at line 1 column 186
        unknown field `time`, expected one of `total`, `elapsed`, `timeline`, `images`, `routines`, `switches`, `returns_without_entry`, `entries_without_return`, `unreadable`, `gaps` at line 1 column 331
        it has times without the clock for them, or the clock without times
        unknown field `state`, expected one of `setup`, `status`, `profile` at line 1 column 215
        unknown variant `all`, expected `services` or `count` at line 1 column 176
        its instructions do not add up
        its routines do not add up
        it has routines without services, or services without routines
        its instructions do not add up
        its calls do not add up
        its calls do not add up
        its times do not add up
        its times do not add up
        its times do not add up
        its intervals do not add up
        its intervals do not add up
        its intervals do not add up
        its intervals do not add up
        its intervals do not add up
        its events do not add up
        its events do not add up
        its instructions do not add up
        EOF while parsing a value at line 1 column 1169
    "#]].assert_eq(&complaints);
}
