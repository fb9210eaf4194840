//! Which CPUs the server and its client run on. Placement is by affinity of the calling thread, set around the
//! start of a child (which inherits it before its first instruction) or around a load, and then restored.

use std::io;

use assay_process::cpus::allowed;
use thiserror::Error;

/// Where a workload file puts one side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Placement {
    /// Anywhere that the calling thread may run.
    #[default]
    Any,
    /// The server on the first CPU that the calling thread may use, the client on the second; both on the same
    /// one if there is only one.
    Split,
    /// These CPUs, numbered as the kernel does.
    Cpus(Vec<usize>),
}

/// The two sides of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The program under load.
    Server,
    /// The one that loads it.
    Client,
}

/// A placement that this machine cannot give.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// The affinity could not be read or set.
    #[error("cannot place the server and its client: {0}")]
    Affinity(io::Error),
    /// A CPU that is absent or that this process may not use.
    #[error(
        "CPU {cpu} is not among the CPUs that this process may use ({allowed:?}); change the workload's cpus"
    )]
    NotAllowed {
        /// The CPU asked for.
        cpu: usize,
        /// The CPUs that can be had.
        allowed: Vec<usize>,
    },
}

impl Placement {
    /// The CPUs that this placement means for the calling thread, in ascending order.
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
    fn a_cpu_that_is_not_allowed_is_an_error_naming_it_and_the_allowed_ones() {
        let error = Placement::Cpus(vec![0, 9]).choose(Role::Server, &[0, 1]).unwrap_err();
        expect_test::expect![
            "CPU 9 is not among the CPUs that this process may use ([0, 1]); change the workload's cpus"
        ]
        .assert_eq(&error.to_string());
    }
}
