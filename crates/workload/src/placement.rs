//! The CPUs of the server and its client. Placement sets the affinity of the calling thread during the start
//! of a child (which inherits it before its first instruction) or during a load, and then restores it.

use std::io;

use assay_process::cpus::allowed;
use thiserror::Error;

/// Placement of one side in a workload file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Placement {
    /// All CPUs on which the calling thread may run.
    #[default]
    Any,
    /// The server on the first CPU that the calling thread may use, the client on the second; both on the
    /// same CPU if there is only one.
    Split,
    /// These CPUs, numbered like in the kernel.
    Cpus(Vec<usize>),
}

/// The two sides of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The program under load.
    Server,
    /// The program that generates the load.
    Client,
}

/// A placement is not possible on this machine.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// The affinity could not be read or set.
    #[error("cannot place the server and its client: {0}")]
    Affinity(io::Error),
    /// A CPU is absent or this process may not use it.
    #[error(
        "CPU {cpu} is not one of the CPUs that this process may use ({allowed:?}); change the CPUs in the workload file"
    )]
    NotAllowed {
        /// The requested CPU.
        cpu: usize,
        /// The available CPUs.
        allowed: Vec<usize>,
    },
}

impl Placement {
    /// Returns the CPUs of this placement for the calling thread, in ascending order.
    pub fn cpus(&self, role: Role) -> Result<Vec<usize>, PlacementError> {
        self.choose(role, &allowed().map_err(PlacementError::Affinity)?)
    }

    fn choose(&self, role: Role, allowed: &[usize]) -> Result<Vec<usize>, PlacementError> {
        match self {
            Placement::Any => Ok(allowed.to_vec()),
            Placement::Split => {
                let wanted = match role {
                    Role::Server => 0,
                    Role::Client => 1,
                };
                Ok(allowed.get(wanted).or(allowed.first()).copied().into_iter().collect())
            }
            Placement::Cpus(cpus) => match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                Some(&cpu) => Err(PlacementError::NotAllowed { cpu, allowed: allowed.to_vec() }),
                None => Ok(cpus.clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Placement, Role};

    #[test]
    fn split_gives_the_first_cpu_to_the_server_and_the_second_to_the_client() {
        let both = |allowed: &[usize]| {
            let of = |role| Placement::Split.choose(role, allowed).unwrap();
            (of(Role::Server), of(Role::Client))
        };
        assert_eq!(both(&[2, 5, 7]), (vec![2], vec![5]));
        assert_eq!(both(&[3]), (vec![3], vec![3]));
    }

    #[test]
    fn the_error_for_a_cpu_that_is_not_allowed_lists_the_allowed_ones() {
        let error = Placement::Cpus(vec![0, 9]).choose(Role::Server, &[0, 1]).unwrap_err();
        expect_test::expect![
            "CPU 9 is not one of the CPUs that this process may use ([0, 1]); change the CPUs in the workload file"
        ]
        .assert_eq(&error.to_string());
    }
}
