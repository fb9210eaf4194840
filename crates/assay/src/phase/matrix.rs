//! Counts what the operations of benchmarks execute in an observed guest.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, ensure};
use assay_bench::Benchmark;
use assay_bench::simulated::{self, Totals};
use assay_guest::Job;
use assay_guest::qemu::Machine;
use assay_quantity::{Matrix, Unmeasured};
use assay_sim::{Plan, Snapshot};

use super::simulation::{MARKS, Observation, observe};
use crate::interrupt::Interrupt;
use crate::output;

/// The dynamic loader of every program (System V ABI, AMD64 supplement, section 5.2.1).
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Makes this program usable in a guest, and huge pages, which the kernel turns off for so little memory.
const PREPARE: &str = "cp -r root/. / && rm -r root && mv assay /bin || exit
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
";

/// Takes samples of each benchmark in a guest, with this program. `source` is the origin of the figures.
pub fn count(
    machine: Machine,
    plan: &Plan,
    benchmarks: &[Benchmark],
    limit: Duration,
    source: String,
    interrupt: &Interrupt,
) -> anyhow::Result<Matrix> {
    let directory = tempfile::Builder::new().prefix("assay-sim-").tempdir();
    let directory = directory.context("cannot create a temporary directory")?;
    let [program, root] = ["assay", "root"].map(|name| directory.path().join(name));
    copy(&env::current_exe().context("cannot find this program's own file")?, &program)?;
    for library in libraries(&program)? {
        copy(&library, &root.join(library.strip_prefix("/")?))?;
    }
    // A tmpfs.
    let samples = simulated::command(benchmarks, "assay", "/dev/shm");
    let job =
        Job { command: format!("{PREPARE}{samples}"), copies: vec![program, root], marks: MARKS, limit };
    let (kernel, memory_mib) = (machine.kernel.release.clone(), machine.memory_mib);
    output::say(&format!("counting {} primitives", benchmarks.len()));
    let Observation { finished, snapshots, .. } = observe(machine, &job, plan, interrupt)?;
    output::say_bytes(&finished.errors);
    let status = finished.status;
    ensure!(status == 0, "the guest's command ended with status {status}; give the guest more memory");
    ensure!(snapshots.omitted == 0, "{} snapshots were not kept; count fewer primitives", snapshots.omitted);
    let at: HashMap<u64, Totals> =
        snapshots.taken.iter().map(|snapshot| (snapshot.number, totals(snapshot))).collect();
    let counted = simulated::executed(benchmarks, &finished.output, &|number| at.get(&number).copied());
    let mut matrix = Matrix { kernel, memory_mib, source, ..Matrix::default() };
    for (benchmark, counted) in benchmarks.iter().zip(counted) {
        let primitive = benchmark.primitive.clone();
        match counted {
            Ok(executed) => drop(matrix.rows.insert(primitive, executed)),
            Err(reason) => matrix.uncounted.push(Unmeasured { primitive, reason: reason.to_string() }),
        }
    }
    Ok(matrix)
}

#[expect(clippy::cast_precision_loss, reason = "a guest executes far fewer than 2^52 instructions")]
fn totals(snapshot: &Snapshot) -> Totals {
    let Snapshot { counts, page_faults, .. } = *snapshot;
    Totals { user: counts.user as f64, kernel: counts.kernel as f64, page_faults: page_faults as f64 }
}

/// The shared libraries of a program and its loader, under the names by which it finds them.
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new(LOADER).arg("--list").arg(program).output();
    let listed = listed.with_context(|| format!("cannot run {LOADER}"))?;
    ensure!(listed.status.success(), "{LOADER} cannot list the libraries of {}", program.display());
    // Each line is one of `NAME => PATH (ADDRESS)`, `PATH (ADDRESS)`, and `linux-vdso.so.1 (ADDRESS)`.
    let listed = String::from_utf8(listed.stdout).context("a library has a name that is not UTF-8")?;
    let path = |line: &str| {
        let path = line.rsplit_once(" (")?.0;
        path.find('/').map(|begin| PathBuf::from(&path[begin..]))
    };
    Ok(listed.lines().filter_map(path).collect())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let parent = to.parent().map_or(Ok(()), fs::create_dir_all);
    let copied = parent.and_then(|()| fs::copy(from, to));
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_ask_for_snapshots_as_the_simulator_expects() {
        assert_eq!(assay_bench::SNAPSHOT, assay_sim::SNAPSHOT);
    }

    #[test]
    fn the_libraries_of_this_program_exist_and_contain_its_loader() {
        let libraries = libraries(&env::current_exe().unwrap()).unwrap();
        assert!(libraries.iter().all(|library| library.is_absolute() && library.exists()), "{libraries:?}");
        assert!(libraries.contains(&PathBuf::from(LOADER)), "{libraries:?}");
    }
}
