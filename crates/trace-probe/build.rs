//! Compiles the BPF object and generates its skeleton.

use std::{env, path::PathBuf, process};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/bpf/probe.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=PATH");
    if process::Command::new("clang").arg("--version").output().is_err() {
        fail("clang is missing: run scripts/setup");
    }
    let out = env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets OUT_DIR");
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        // v3, Linux 5.12, has the atomic exchange that the accounting of interrupts needs.
        .clang_args(["-Wall", "-Werror", "-mcpu=v3"])
        .build_and_generate(out.join("probe.skel.rs"));
    if let Err(error) = built {
        fail(&format!("{SOURCE} does not compile: {error:#}"));
    }
}

fn fail(message: &str) -> ! {
    println!("cargo:error={message}");
    process::exit(1)
}
