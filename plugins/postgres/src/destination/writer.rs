//! A load under way: one transaction a commit, with its rows copied in and its mark beside them.

use setu_sdk::{Batch, Error, ErrorKind, Result, Schema, Summary, WriteMode, Writer};

use super::lost_rows;
use super::plan::{Danger, Plan};
use super::progress::Progress;
use super::shadow;
use crate::client::Client;
use crate::copy_in::CopyIn;
use crate::encode::{self, Encoder};
use crate::session::{self, Endpoint};
use crate::sql::{Table, ident, idents};

/// Where rows wait for a cast or a merge. It lives as long as the transaction.
const STAGE: &str = "pg_temp.\"_setu_stage\"";

/// Writes one load.
pub struct PostgresWriter {
    endpoint: Endpoint,
    client: Client,
    progress: Progress,
    load_id: String,
    mode: WriteMode,
    schema: Schema,
    /// What rows go into: the target, or the shadow of an overwrite.
    into: Table,
    plan: Plan,
    encoders: Vec<Encoder>,
    names: Vec<String>,
    /// The COPY of the transaction under way, and its rows so far.
    open: Option<(CopyIn, u64)>,
}

impl std::fmt::Debug for PostgresWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresWriter")
            .field("into", &self.into)
            .finish_non_exhaustive()
    }
}

/// Whether rows pass through a staging table. Those without columns do: a COPY cannot name none of a table's columns.
pub(super) fn is_staged(mode: WriteMode, plan: &Plan) -> bool {
    mode == WriteMode::Upsert || !plan.is_direct() || plan.columns.is_empty()
}

impl PostgresWriter {
    pub(super) fn new(
        endpoint: Endpoint,
        client: Client,
        progress: Progress,
        load: setu_sdk::LoadRequest,
        into: Table,
        plan: Plan,
    ) -> PostgresWriter {
        PostgresWriter {
            endpoint,
            client,
            progress,
            load_id: load.load_id,
            mode: load.mode,
            schema: load.target.schema,
            into,
            encoders: plan.columns.iter().map(|column| column.encoder).collect(),
            names: plan.columns.iter().map(|column| column.name.clone()).collect(),
            plan,
            open: None,
        }
    }

    fn is_staged(&self) -> bool {
        is_staged(self.mode, &self.plan)
    }

    /// Begins the transaction and the COPY of the next commit.
    fn open(&mut self) -> Result<CopyIn> {
        session::begin_writing(&mut self.client)?;
        let sql = if self.is_staged() {
            let columns = self.plan.columns.iter().enumerate();
            let columns: Vec<String> = columns
                .map(|(at, column)| format!("c{at} {}", column.stage_type))
                .collect();
            self.client.execute(&format!(
                "CREATE TEMPORARY TABLE {STAGE} ({}) ON COMMIT DROP",
                columns.join(", ")
            ))?;
            format!("COPY {STAGE} FROM STDIN (FORMAT binary)")
        } else {
            format!(
                "COPY {}{} FROM STDIN (FORMAT binary)",
                self.into.sql(),
                self.column_list()
            )
        };
        CopyIn::start(&mut self.client, &sql).map_err(|error| self.explain(error))
    }

    /// The target's columns in parentheses; nothing for a stream without columns.
    fn column_list(&self) -> String {
        if self.names.is_empty() {
            return String::new();
        }
        format!(" ({})", idents(self.names.iter().map(String::as_str)))
    }

    /// The staged value of a column, cast to the target's type without its length, so that a value that is too long
    /// fails on assignment and is not cut off.
    fn staged_value(&self, at: usize) -> String {
        match self
            .plan
            .columns
            .get(at)
            .and_then(|column| column.cast.as_deref())
        {
            Some(cast) => format!("s.c{at}::{cast}"),
            None => format!("s.c{at}"),
        }
    }

    /// The staged values of the key's columns.
    fn staged_key(&self) -> Vec<String> {
        let places = self.schema.primary_key.iter();
        places
            .filter_map(|name| self.schema.index_of(name))
            .map(|at| self.staged_value(at))
            .collect()
    }

    /// From the staging table into the target.
    fn merge_sql(&self) -> String {
        let values: Vec<String> = (0..self.names.len()).map(|at| self.staged_value(at)).collect();
        let (columns, values) = (self.column_list(), values.join(", "));
        let insert = format!(
            "INSERT INTO {}{columns} OVERRIDING SYSTEM VALUE SELECT",
            self.into.sql()
        );
        if self.mode != WriteMode::Upsert {
            return format!("{insert} {values} FROM {STAGE} s");
        }
        let key = &self.schema.primary_key;
        let key_values = self.staged_key().join(", ");
        let changes = self.names.iter().filter(|name| !key.contains(name));
        let changes: Vec<String> = changes
            .map(|name| format!("{0} = excluded.{0}", ident(name)))
            .collect();
        let action = if changes.is_empty() {
            "NOTHING".to_owned()
        } else {
            format!("UPDATE SET {}", changes.join(", "))
        };
        // Rows lie in the staging table in the order of their arrival: of those with one key the last one counts.
        format!(
            "{insert} DISTINCT ON ({key_values}) {values} FROM {STAGE} s ORDER BY {key_values}, s.ctid DESC \
             ON CONFLICT ({}) DO {action}",
            idents(key.iter().map(String::as_str))
        )
    }

    /// Names the table that an error is about, and tells what another load or attempt did from other failures.
    fn explain(&self, error: Error) -> Error {
        let table = &self.progress.target;
        if error.kind() == ErrorKind::Unreachable
            && let Some(superseded) = self.superseded()
        {
            return superseded;
        }
        if error.code() == Some("42P01") && self.mode == WriteMode::Overwrite {
            return Error::conflict(format!(
                "another load of {table} has begun and taken the place of this one"
            ));
        }
        if error.code().is_some() {
            error.context(table)
        } else {
            error
        }
    }

    /// What a transaction came to. One that failed is rolled back at once: nothing of it may go into the next.
    fn settle(&mut self, outcome: Result<()>) -> Result<()> {
        outcome.map_err(|error| {
            self.client.execute("ROLLBACK").ok();
            self.explain(error)
        })
    }

    /// A later attempt ends the session of an earlier one, which then looks like a broken connection.
    fn superseded(&self) -> Option<Error> {
        let mut client = self.endpoint.connect().ok()?;
        self.progress.superseded(&mut client)
    }

    fn commit_rows(&mut self, mark: u64) -> Result<()> {
        let rows = match self.open.take() {
            Some((copy, rows)) => {
                let mut arrived = copy.finish(&mut self.client)?;
                if self.is_staged() {
                    let sql = self.merge_sql();
                    self.refuse_null_keys()?;
                    self.refuse_changes()?;
                    arrived = self.client.update(&sql, &[])?;
                }
                if arrived != rows && self.mode == WriteMode::Upsert {
                    self.refuse_lost_upserts(arrived)?;
                } else {
                    lost_rows::refuse_loss(&mut self.client, &self.into, rows, arrived)?;
                }
                rows
            }
            None => {
                session::begin_writing(&mut self.client)?;
                0
            }
        };
        self.progress.advance(&mut self.client, mark, rows)?;
        self.client.execute("COMMIT")
    }

    /// Of an upsert that wrote `arrived` rows, tells keys that came twice and rows that were left as they are from rows
    /// that were dropped.
    fn refuse_lost_upserts(&mut self, arrived: u64) -> Result<()> {
        let key = self.staged_key();
        let sql = format!(
            "SELECT count(*) FROM (SELECT DISTINCT {} FROM {STAGE} s) keys",
            key.join(", ")
        );
        let keys: u64 = self.client.query_one(&sql, &[])?.number(0)?;
        if keys == arrived {
            return Ok(());
        }
        let columns = self.schema.primary_key.iter().map(|name| ident(name));
        let same: Vec<String> = columns
            .zip(&key)
            .map(|(column, value)| format!("t.{column} = {value}"))
            .collect();
        let sql = format!(
            "SELECT count(*) FROM (SELECT DISTINCT {} FROM {STAGE} s WHERE EXISTS (SELECT 1 FROM {} t WHERE {})) keys",
            key.join(", "),
            self.into.sql(),
            same.join(" AND ")
        );
        let there: u64 = self.client.query_one(&sql, &[])?.number(0)?;
        lost_rows::refuse_loss(&mut self.client, &self.into, keys, there)?;
        // Every key is there. The rows that were not written are right as they were where there is nothing but the key,
        // or where Postgres' own trigger found nothing to change in them.
        let has_more = self.names.len() > key.len();
        if !has_more || lost_rows::skips_unchanged(&mut self.client, &self.into)? {
            return Ok(());
        }
        lost_rows::refuse_loss(&mut self.client, &self.into, keys, arrived)
    }

    /// Two rows without a key are not the same row, but a merge would take them for it.
    fn refuse_null_keys(&mut self) -> Result<()> {
        if self.mode != WriteMode::Upsert {
            return Ok(());
        }
        for name in &self.schema.primary_key {
            let Some(at) = self
                .schema
                .index_of(name)
                .filter(|&at| self.schema.fields[at].nullable)
            else {
                continue;
            };
            let sql = format!("SELECT 1 FROM {STAGE} s WHERE s.c{at} IS NULL LIMIT 1");
            if !self.client.query(&sql, &[])?.is_empty() {
                return Err(Error::data(format!(
                    "column `{name}` belongs to the key and is null in a row"
                )));
            }
        }
        Ok(())
    }

    /// A value that its column would round or cut off must not be changed silently.
    fn refuse_changes(&mut self) -> Result<()> {
        let columns = self.plan.columns.iter().enumerate();
        let dangers: Vec<(String, &Danger, String)> = columns
            .filter_map(|(at, column)| {
                let (value, danger) = (self.staged_value(at), column.danger.as_ref()?);
                let condition = match danger {
                    Danger::Rounded(sql_type) => format!("{value} <> ({value})::{sql_type}"),
                    Danger::CutOff => format!("s.c{at} <> ({value})::pg_catalog.text"),
                };
                Some((column.name.clone(), danger, format!("bool_or({condition})")))
            })
            .collect();
        if dangers.is_empty() {
            return Ok(());
        }
        let conditions: Vec<&str> = dangers
            .iter()
            .map(|(_, _, condition)| condition.as_str())
            .collect();
        let row = self
            .client
            .query_one(&format!("SELECT {} FROM {STAGE} s", conditions.join(", ")), &[])?;
        let changed = dangers
            .iter()
            .enumerate()
            .find(|(at, _)| row.opt(*at) == Some("t"));
        match changed {
            Some((_, (name, Danger::Rounded(_), _))) => Err(Error::data(format!(
                "column `{name}`: a value is more precise than the target column, which would round it; widen the column"
            ))),
            Some((_, (name, Danger::CutOff, _))) => Err(Error::data(format!(
                "column `{name}`: a value is longer than the target column, which would cut it off; widen the column"
            ))),
            None => Ok(()),
        }
    }

    fn publish(&mut self) -> Result<()> {
        session::begin_writing(&mut self.client)?;
        self.progress.finish(&mut self.client)?;
        if self.mode == WriteMode::Overwrite {
            shadow::publish(&mut self.client, &self.progress, &self.load_id, &self.schema)?;
        }
        self.client.execute("COMMIT")?;
        self.progress.finished = true;
        Ok(())
    }
}

impl Writer for PostgresWriter {
    fn committed(&self) -> u64 {
        self.progress.mark
    }

    fn write(&mut self, batch: Batch) -> Result<()> {
        if self.progress.finished {
            return Err(Error::conflict(format!(
                "load {} has finished; it takes no more rows",
                self.load_id
            )));
        }
        if batch.columns.len() != self.encoders.len() {
            return Err(Error::internal(format!(
                "a batch has {} columns and its schema {}",
                batch.columns.len(),
                self.encoders.len()
            )));
        }
        let (mut copy, rows) = match self.open.take() {
            Some(open) => open,
            None => (self.open()?, 0),
        };
        encode::write_batch(&batch, &self.encoders, &self.names, &mut copy, &mut self.client)
            .map_err(|error| self.explain(error))?;
        self.open = Some((copy, rows + u64::from(batch.rows)));
        Ok(())
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        if self.progress.finished && self.open.is_none() && mark <= self.progress.mark {
            return Ok(());
        }
        let committed = self.commit_rows(mark);
        self.settle(committed)
    }

    fn finish(&mut self) -> Result<Summary> {
        if self.open.is_some() {
            return Err(Error::internal("rows were written after the last commit"));
        }
        if !self.progress.finished {
            let published = self.publish();
            self.settle(published)?;
        }
        Ok(Summary {
            rows_written: self.progress.rows,
        })
    }
}
