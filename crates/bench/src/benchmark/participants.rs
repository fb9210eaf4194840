//! The tasks that take part in a benchmark. Which time is lost depends on them: the time that a benchmark's
//! own partner takes is part of the measurement, and so is the sleep of an operation that sleeps.

/// The tasks that take part in one sample, and where they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participants {
    /// How they share processors.
    pub sharing: Sharing,
    /// The processor of the measuring thread.
    pub cpu: usize,
    /// Number of other copies of the benchmark.
    pub copies: u64,
}

impl Participants {
    /// Whether all participants on this machine run on one processor.
    pub(crate) fn are_on_one_cpu(&self) -> bool {
        self.copies == 0 && !matches!(self.sharing, Sharing::TwoCpus { .. } | Sharing::Many { .. })
    }

    /// Returns the known processors.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = usize> {
        let other = if let Sharing::TwoCpus { cpu, .. } = self.sharing { Some(cpu) } else { None };
        [self.cpu].into_iter().chain(other)
    }

    /// Returns the known ids of the tasks other than this process and its copies.
    pub(crate) fn partners(&self) -> &[libc::pid_t] {
        match &self.sharing {
            Sharing::OneCpu { partners } | Sharing::Many { others: partners } => partners,
            Sharing::TwoCpus { partner, .. } => std::slice::from_ref(partner),
            Sharing::Alone | Sharing::Asleep | Sharing::OtherHost => &[],
        }
    }
}

/// How the tasks that take part in a benchmark share processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// This process only, which is never idle.
    Alone,
    /// This process only, which sleeps on purpose.
    Asleep,
    /// This process with its threads, the children that it waits for, and its partners, all on one processor
    /// that is never idle.
    OneCpu {
        /// Process ids of the partners.
        partners: Vec<libc::pid_t>,
    },
    /// This process and a partner on another processor, which wait for each other.
    TwoCpus {
        /// Process or thread id of the partner.
        partner: libc::pid_t,
        /// Its processor.
        cpu: usize,
    },
    /// This process and a partner on another host, whose processors cannot be observed from here.
    OtherHost,
    /// This process and others of the same kind, more than there are processors or placed by the scheduler:
    /// their waiting for each other is part of the measurement.
    Many {
        /// Process or thread ids of the other participants that are not copies of this process.
        others: Vec<libc::pid_t>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_and_processors_are_those_of_the_sharing() {
        let with = |sharing| Participants { sharing, cpu: 0, copies: 0 };
        let one = with(Sharing::OneCpu { partners: vec![7, 8] });
        assert_eq!((one.partners(), one.are_on_one_cpu()), (&[7, 8][..], true));
        assert!(!Participants { copies: 1, ..one }.are_on_one_cpu());
        let two = with(Sharing::TwoCpus { partner: 7, cpu: 1 });
        assert_eq!((two.partners(), two.are_on_one_cpu()), (&[7][..], false));
        assert_eq!(two.cpus().collect::<Vec<_>>(), [0, 1]);
        let asleep = with(Sharing::Asleep);
        assert_eq!((asleep.partners(), asleep.cpus().collect::<Vec<_>>()), (&[][..], vec![0]));
    }
}
