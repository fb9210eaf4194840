//! Reads runs and their data.

use assay_quantity::{PrimitiveId, Round, Sample, Unit, Unmeasured};
use rusqlite::{OptionalExtension, Params, Row, params};
use serde::de::DeserializeOwned;

use crate::failure::ReadError;
use crate::row::{DescriptionRow, RoundRow, SampleRow};
use crate::{Outcome, Rejected, Run, RunId, RunStart, Series, Store};

/// Columns of a run, in the order of [`RawRun`].
const RUN: &str =
    "SELECT id, started_at, command, version, machine, description, seed, outcome, reason FROM run";

impl Store {
    /// Returns all runs, oldest first.
    ///
    /// # Errors
    /// [`ReadError`] if the store cannot be read.
    pub fn runs(&self) -> Result<Vec<Run>, ReadError> {
        let raw = self.rows(&format!("{RUN} ORDER BY id"), [], RawRun::read)?;
        raw.into_iter().map(|raw| self.parsed_run(raw)).collect()
    }

    /// Returns one run.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such run or the store cannot be read.
    pub fn run(&self, run: RunId) -> Result<Run, ReadError> {
        let raw = self.rows(&format!("{RUN} WHERE id = ?1"), [run.0], RawRun::read)?;
        match raw.into_iter().next() {
            Some(raw) => self.parsed_run(raw),
            None => Err(ReadError::NoRun { path: self.path.clone(), run }),
        }
    }

    /// Returns the run that started last, or the one that started `back` runs before it; `None` if there is
    /// none.
    ///
    /// # Errors
    /// [`ReadError`] if the store cannot be read.
    pub fn latest(&self, back: u32) -> Result<Option<Run>, ReadError> {
        let raw = self.rows(&format!("{RUN} ORDER BY id DESC LIMIT 1 OFFSET {back}"), [], RawRun::read)?;
        raw.into_iter().next().map(|raw| self.parsed_run(raw)).transpose()
    }

    /// Returns the samples of a run, grouped by primitive and in insertion order; the primitives are in the
    /// order of their first sample.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such run or the store cannot be read.
    pub fn samples(&self, run: RunId) -> Result<Vec<Series>, ReadError> {
        let select =
            "SELECT series.id, primitive, unit, body FROM series JOIN sample ON sample.series = series.id
                      WHERE run = ?1 ORDER BY series.id, sample.id";
        let raw = self.rows_of(select, run, |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, String>(3)?,
            ))
        })?;
        let mut all: Vec<Series> = Vec::new();
        let mut last = None;
        for (series, primitive, unit, body) in raw {
            if last != Some(series) {
                let primitive = self.primitive(&primitive)?;
                let unit = unit.parse::<Unit>().map_err(|error| self.damaged(&error))?;
                all.push(Series { primitive, unit, samples: Vec::new() });
                last = Some(series);
            }
            let sample = self.json::<SampleRow>(&body)?.into();
            if let Some(series) = all.last_mut() {
                series.samples.push(sample);
            }
        }
        Ok(all)
    }

    /// Returns the samples of one primitive in a run, in insertion order; empty if there are none.
    ///
    /// # Errors
    /// [`ReadError`] if the store cannot be read.
    pub fn samples_of(&self, run: RunId, primitive: &PrimitiveId) -> Result<Vec<Sample>, ReadError> {
        let select = "SELECT body FROM series JOIN sample ON sample.series = series.id
                      WHERE run = ?1 AND primitive = ?2 ORDER BY sample.id";
        let bodies =
            self.rows(select, params![run.0, primitive.to_string()], |row| row.get::<_, String>(0))?;
        bodies.iter().map(|body| Ok(self.json::<SampleRow>(body)?.into())).collect()
    }

    /// Returns the samples of a run that could not be taken, in order.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such run or the store cannot be read.
    pub fn rejected(&self, run: RunId) -> Result<Vec<Rejected>, ReadError> {
        let select = "SELECT primitive, reason FROM rejected WHERE run = ?1 ORDER BY id";
        self.rows_of(select, run, text_pair)?
            .into_iter()
            .map(|(primitive, reason)| Ok(Rejected { primitive: self.primitive(&primitive)?, reason }))
            .collect()
    }

    /// Returns the primitives that could not be measured in a run, in order.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such run or the store cannot be read.
    pub fn unavailable(&self, run: RunId) -> Result<Vec<Unmeasured>, ReadError> {
        let select = "SELECT primitive, reason FROM unavailable WHERE run = ?1 ORDER BY id";
        self.rows_of(select, run, text_pair)?
            .into_iter()
            .map(|(primitive, reason)| Ok(Unmeasured { primitive: self.primitive(&primitive)?, reason }))
            .collect()
    }

    /// Returns the rounds of a run, in order.
    ///
    /// # Errors
    /// [`ReadError`] if there is no such run or the store cannot be read.
    pub fn rounds(&self, run: RunId) -> Result<Vec<Round>, ReadError> {
        let select = "SELECT operation, body FROM round WHERE run = ?1 ORDER BY id";
        self.rows_of(select, run, text_pair)?
            .into_iter()
            .map(|(operation, body)| Ok(self.json::<RoundRow>(&body)?.of(operation)))
            .collect()
    }

    /// Returns the rows of a run. Fails if the run does not exist, so that a wrong number is distinguished
    /// from an empty run.
    fn rows_of<T>(
        &self,
        select: &str,
        run: RunId,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ReadError> {
        let exists: Option<i64> = self
            .connection
            .query_row("SELECT id FROM run WHERE id = ?1", [run.0], |row| row.get(0))
            .optional()
            .map_err(|error| ReadError::sqlite(&self.path, &error))?;
        match exists {
            Some(_) => self.rows(select, [run.0], read),
            None => Err(ReadError::NoRun { path: self.path.clone(), run }),
        }
    }

    fn rows<T>(
        &self,
        select: &str,
        values: impl Params,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ReadError> {
        let rows = || -> rusqlite::Result<Vec<T>> {
            self.connection.prepare_cached(select)?.query_map(values, read)?.collect()
        };
        rows().map_err(|error| ReadError::sqlite(&self.path, &error))
    }

    fn parsed_run(&self, raw: RawRun) -> Result<Run, ReadError> {
        let outcome = match (raw.outcome.as_deref(), raw.reason) {
            (None, None) => None,
            (Some("completed"), None) => Some(Outcome::Completed),
            (Some("interrupted"), None) => Some(Outcome::Interrupted),
            (Some("failed"), Some(reason)) => Some(Outcome::Failed(reason)),
            (outcome, _) => {
                return Err(self.damaged(&format!("run {} has the invalid outcome {outcome:?}", raw.id)));
            }
        };
        let start = RunStart {
            started_at: raw.started_at,
            command: self.json(&raw.command)?,
            version: raw.version,
            machine: raw.machine,
            description: self.json::<DescriptionRow>(&raw.description)?.into(),
            seed: raw.seed.parse().map_err(|_| self.damaged(&format!("run {} has no valid seed", raw.id)))?,
        };
        Ok(Run { id: RunId(raw.id), start, outcome })
    }

    fn primitive(&self, name: &str) -> Result<PrimitiveId, ReadError> {
        name.parse().map_err(|error| self.damaged(&error))
    }

    fn json<T: DeserializeOwned>(&self, text: &str) -> Result<T, ReadError> {
        serde_json::from_str(text).map_err(|error| self.damaged(&error))
    }

    fn damaged(&self, what: &dyn std::fmt::Display) -> ReadError {
        ReadError::Damaged { path: self.path.clone(), what: what.to_string() }
    }
}

/// The columns of a run.
struct RawRun {
    id: i64,
    started_at: String,
    command: String,
    version: String,
    machine: String,
    description: String,
    seed: String,
    outcome: Option<String>,
    reason: Option<String>,
}

impl RawRun {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            started_at: row.get(1)?,
            command: row.get(2)?,
            version: row.get(3)?,
            machine: row.get(4)?,
            description: row.get(5)?,
            seed: row.get(6)?,
            outcome: row.get(7)?,
            reason: row.get(8)?,
        })
    }
}

fn text_pair(row: &Row<'_>) -> rusqlite::Result<(String, String)> {
    Ok((row.get(0)?, row.get(1)?))
}
