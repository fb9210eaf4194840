//! A repeated operation, with a check of the kernel's work after each batch.
//!
//! Most benchmarks are a loop around one call or a few. Such a benchmark defines one [`Step`] and how to
//! verify the work of a batch; this module contains the loop and the count of its iterations.

use std::io;

use crate::benchmark::{Operation, expect_done};

/// One operation, and the evidence that it was executed.
pub(crate) trait Step {
    /// Prepares a batch, untimed. The evidence that [`disarm`](Self::disarm) checks must not exist yet.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let _ = operations;
        Ok(())
    }

    /// Executes the timed operation once.
    fn step(&mut self) -> io::Result<()>;

    /// Checks, untimed, for evidence that only a batch that was really executed leaves behind.
    fn disarm(&mut self, operations: u64) -> io::Result<()>;

    /// The longest batch that can be armed.
    fn max_batch(&self) -> u64 {
        u64::MAX
    }

    /// The length of a batch must be a multiple of this number.
    fn granule(&self) -> u64 {
        1
    }
}

/// A step in a loop that is compiled for this step type.
pub(crate) struct Steps<S> {
    step: S,
    done: u64,
}

impl<S: Step> Steps<S> {
    pub(crate) fn of(step: S) -> Self {
        Self { step, done: 0 }
    }
}

impl<S: Step> Operation for Steps<S> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.step.arm(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.step.step()?;
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        // Both are executed, because the step's part also removes what a batch that was not executed was
        // armed with.
        let shown = self.step.disarm(operations);
        expect_done(std::mem::take(&mut self.done), operations)?;
        shown
    }

    fn max_batch(&self) -> u64 {
        self.step.max_batch()
    }

    fn granule(&self) -> u64 {
        self.step.granule()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count {
        steps: u64,
        fails_at: u64,
    }

    impl Step for Count {
        fn arm(&mut self, _: u64) -> io::Result<()> {
            self.steps = 0;
            Ok(())
        }

        fn step(&mut self) -> io::Result<()> {
            self.steps += 1;
            if self.steps == self.fails_at { Err(io::Error::other("refused")) } else { Ok(()) }
        }

        fn disarm(&mut self, operations: u64) -> io::Result<()> {
            if self.steps == operations { Ok(()) } else { Err(io::Error::other("unseen")) }
        }
    }

    #[test]
    fn a_batch_executes_the_given_number_of_steps_and_ends_at_the_first_failure() {
        let mut steps = Steps::of(Count { steps: 0, fails_at: 8 });
        steps.arm(7).unwrap();
        steps.run(7).unwrap();
        steps.disarm(7).unwrap();
        assert_eq!(steps.run(5).unwrap_err().to_string(), "refused");
        assert_eq!(steps.step.steps, 8);
    }

    #[test]
    fn a_batch_that_was_not_run_or_left_no_trace_is_an_error() {
        let mut steps = Steps::of(Count { steps: 0, fails_at: 0 });
        let error = steps.disarm(3).unwrap_err().to_string();
        assert!(error.contains("0 of 3 operations were done"), "{error}");
        steps.run(3).unwrap();
        steps.step.steps = 0;
        assert_eq!(steps.disarm(3).unwrap_err().to_string(), "unseen");
    }
}
