//! Writes runs: starts a run, adds data in one transaction each, and ends the run.

use assay_quantity::{Description, PrimitiveId, Round, Sample, Unit};
use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use serde::Serialize;

use crate::failure::WriteError;
use crate::row::{DescriptionRow, RoundRow, SampleRow};
use crate::{Outcome, RunId, RunStart, Store};

impl Store {
    /// Starts a run.
    ///
    /// # Errors
    /// [`WriteError`] if it could not be written.
    pub fn begin_run(&mut self, start: &RunStart) -> Result<RunId, WriteError> {
        let row = params![
            start.started_at,
            json(&start.command),
            start.version,
            start.machine,
            json(&DescriptionRow::from(&start.description)),
            start.seed.to_string(),
        ];
        let insert = "INSERT INTO run (started_at, command, version, machine, description, seed)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        self.connection.execute(insert, row).map_err(|error| WriteError::sqlite(&self.path, &error))?;
        Ok(RunId(self.connection.last_insert_rowid()))
    }

    /// Adds a sample. After this returns, a kill of the process does not lose it.
    ///
    /// # Errors
    /// [`WriteError`] if it was not added: the run has ended, the unit differs from that of the primitive's
    /// other samples, a value is not finite, or it could not be written.
    pub fn add_sample(
        &mut self,
        run: RunId,
        primitive: &PrimitiveId,
        unit: Unit,
        sample: &Sample,
    ) -> Result<(), WriteError> {
        if let Some(value) = not_finite(sample) {
            return Err(WriteError::NotFinite { primitive: primitive.to_string(), value });
        }
        let name = primitive.to_string();
        let body = json(&SampleRow::from(sample));
        let known = self.in_run(run, |transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO series (run, primitive, unit) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                )?
                .execute(params![run.0, name, unit.symbol()])?;
            let (series, known): (i64, String) = transaction
                .prepare_cached("SELECT id, unit FROM series WHERE run = ?1 AND primitive = ?2")?
                .query_row(params![run.0, name], |row| Ok((row.get(0)?, row.get(1)?)))?;
            if known == unit.symbol() {
                transaction
                    .prepare_cached("INSERT INTO sample (series, body) VALUES (?1, ?2)")?
                    .execute(params![series, body])?;
            }
            Ok(known)
        })?;
        if known == unit.symbol() {
            Ok(())
        } else {
            Err(WriteError::Units { run, primitive: name, unit: known, other: unit })
        }
    }

    /// Adds a sample that could not be taken, with the reason.
    ///
    /// # Errors
    /// [`WriteError`] if it was not added.
    pub fn add_rejected(
        &mut self,
        run: RunId,
        primitive: &PrimitiveId,
        reason: &str,
    ) -> Result<(), WriteError> {
        self.in_run(run, |transaction| {
            transaction.execute(
                "INSERT INTO rejected (run, primitive, reason) VALUES (?1, ?2, ?3)",
                params![run.0, primitive.to_string(), reason],
            )
        })
        .map(drop)
    }

    /// Adds a primitive that cannot be measured on this machine, with the reason. The last reason replaces
    /// earlier ones.
    ///
    /// # Errors
    /// [`WriteError`] if it was not added.
    pub fn add_unavailable(
        &mut self,
        run: RunId,
        primitive: &PrimitiveId,
        reason: &str,
    ) -> Result<(), WriteError> {
        self.in_run(run, |transaction| {
            transaction.execute(
                "INSERT INTO unavailable (run, primitive, reason) VALUES (?1, ?2, ?3)
                 ON CONFLICT (run, primitive) DO UPDATE SET reason = excluded.reason",
                params![run.0, primitive.to_string(), reason],
            )
        })
        .map(drop)
    }

    /// Adds a round of a workload.
    ///
    /// # Errors
    /// [`WriteError`] if it was not added.
    pub fn add_round(&mut self, run: RunId, round: &Round) -> Result<(), WriteError> {
        self.in_run(run, |transaction| {
            transaction.execute(
                "INSERT INTO round (run, operation, body) VALUES (?1, ?2, ?3)",
                params![run.0, round.operation, json(&RoundRow::from(round))],
            )
        })
        .map(drop)
    }

    /// Ends a run. Nothing can be added afterwards.
    ///
    /// # Errors
    /// [`WriteError`] if it has ended already or could not be written.
    pub fn finish_run(&mut self, run: RunId, outcome: &Outcome) -> Result<(), WriteError> {
        let (name, reason) = match outcome {
            Outcome::Completed => ("completed", None),
            Outcome::Interrupted => ("interrupted", None),
            Outcome::Failed(reason) => ("failed", Some(reason)),
        };
        self.in_run(run, |transaction| {
            transaction.execute(
                "UPDATE run SET outcome = ?2, reason = ?3 WHERE id = ?1",
                params![run.0, name, reason],
            )
        })
        .map(drop)
    }

    /// Reopens a run that was interrupted, failed or was cut off, so that more data can be added.
    ///
    /// # Errors
    /// [`WriteError`] if it was completed, or if it could not be written.
    pub fn resume_run(&mut self, run: RunId) -> Result<(), WriteError> {
        let path = &self.path;
        let refused = |error| WriteError::sqlite(path, &error);
        let reopen =
            "UPDATE run SET outcome = NULL, reason = NULL WHERE id = ?1 AND outcome IS NOT 'completed'";
        let reopened = self.connection.execute(reopen, [run.0]).map_err(refused)?;
        if reopened == 0 { Err(WriteError::Ended { path: path.clone(), run }) } else { Ok(()) }
    }

    /// Replaces the description of the machine: some facts are available only at the end of the run.
    ///
    /// # Errors
    /// [`WriteError`] if the run has ended already or could not be written.
    pub fn describe_run(&mut self, run: RunId, description: &Description) -> Result<(), WriteError> {
        let description = json(&DescriptionRow::from(description));
        self.in_run(run, |transaction| {
            transaction.execute("UPDATE run SET description = ?2 WHERE id = ?1", params![run.0, description])
        })
        .map(drop)
    }

    /// Runs one transaction on a run that has not ended. It takes the write lock at the start: a transaction
    /// that takes it later could fail because another process was faster, and would have to start again.
    fn in_run<T>(
        &mut self,
        run: RunId,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, WriteError> {
        let path = &self.path;
        let refused = |error| WriteError::sqlite(path, &error);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
        let is_open: Option<bool> = transaction
            .prepare_cached("SELECT outcome IS NULL FROM run WHERE id = ?1")
            .and_then(|mut select| select.query_row([run.0], |row| row.get(0)).optional())
            .map_err(refused)?;
        match is_open {
            None => return Err(WriteError::NoRun { path: path.clone(), run }),
            Some(false) => return Err(WriteError::Ended { path: path.clone(), run }),
            Some(true) => {}
        }
        let written = write(&transaction).map_err(refused)?;
        transaction.commit().map_err(refused)?;
        Ok(written)
    }
}

/// Returns a value of the sample that JSON cannot represent.
fn not_finite(sample: &Sample) -> Option<f64> {
    let batches = sample.observations.iter().chain(&sample.baseline);
    let counted = sample.counted.iter().filter_map(|counted| counted.batches.as_ref().ok()).flatten();
    let readings = sample.evidence.iter().flat_map(|(_, readings)| readings);
    batches
        .map(|batch| batch.elapsed_ns)
        .chain(counted.map(|(_, count)| *count))
        .chain(readings.copied())
        .find(|value| !value.is_finite())
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("rows are text, numbers and lists of them")
}
