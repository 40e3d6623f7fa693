//! How far each load got: a table of its own in the target schema, changed in the same transactions as the rows.
//!
//! It also keeps writers apart. Each attempt of a load takes the load over by raising `attempt`; whoever commits must
//! find its own attempt there, and otherwise stops with `conflict`.

use setu_sdk::{Error, LoadRequest, Result, WriteMode};

use crate::client::Client;
use crate::hash::hash;
use crate::session;
use crate::sql::{Table, ident};

/// The table's name.
pub(crate) const LOADS: &str = "_setu_loads";

/// A load's row, as this attempt last saw it.
#[derive(Debug)]
pub(crate) struct Progress {
    loads: Table,
    load_id: String,
    attempt: u64,
    pub(crate) target: Table,
    /// The last mark committed; 0: none.
    pub(crate) mark: u64,
    /// Rows written by this load, over all its attempts.
    pub(crate) rows: u64,
    pub(crate) finished: bool,
    /// How the shadow table of an overwrite was made, once it was.
    pub(crate) shadow: Option<String>,
}

/// What a session is called while it writes, so that a later attempt can tell it from others.
pub(crate) fn session_name(load_id: &str) -> String {
    format!("setu load {:016x}", hash(load_id))
}

/// Creates schema and progress table where they are missing. Two streams that begin at once take turns.
pub(crate) fn prepare_schema(client: &mut Client, schema: &str) -> Result<()> {
    session::begin_writing(client)?;
    session::take_turns(client, schema)?;
    if !crate::catalog::schema_exists(client, schema)? {
        client.execute(&format!("CREATE SCHEMA IF NOT EXISTS {}", ident(schema)))?;
    }
    let loads = Table::new(schema, LOADS);
    let exists = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = $2";
    if client.query(exists, &[Some(schema), Some(LOADS)])?.is_empty() {
        client.execute(&format!(
            "CREATE TABLE {table} (load_id text PRIMARY KEY, target text NOT NULL, mode text NOT NULL, \
               attempt int8 NOT NULL, mark int8 NOT NULL DEFAULT 0, rows int8 NOT NULL DEFAULT 0, shadow text, \
               finished boolean NOT NULL DEFAULT false, session int4, session_start timestamptz, \
               updated_at timestamptz NOT NULL DEFAULT now()); \
             COMMENT ON TABLE {table} IS 'Progress of the loads that Setu wrote into this schema. A load whose row is \
               gone starts over.'",
            table = loads.sql()
        ))?;
    }
    client.execute("COMMIT")
}

impl Progress {
    /// Ends the session of an earlier attempt that may still hang on this server, holding locks. Best effort: whoever
    /// may not end it waits for its locks instead.
    pub(crate) fn end_earlier_session(client: &mut Client, schema: &str, load: &LoadRequest) {
        let sql = format!(
            "SELECT pg_terminate_backend(a.pid) FROM {} l JOIN pg_stat_activity a \
               ON a.pid = l.session AND a.backend_start = l.session_start \
             WHERE l.load_id = $1 AND l.attempt < $2::int8 AND a.application_name = $3 AND a.usename = current_user",
            Table::new(schema, LOADS).sql()
        );
        let attempt = load.attempt.to_string();
        let values = [
            Some(load.load_id.as_str()),
            Some(&attempt),
            Some(&session_name(&load.load_id)),
        ];
        if let Err(error) = client.query(&sql, &values) {
            setu_sdk::log::debug!("an earlier attempt's session was not looked for: {}", error);
        }
    }

    /// Takes the load over, within a transaction: later commits of earlier attempts fail.
    ///
    /// # Errors
    /// `conflict` where a later attempt has taken it already, or the load id belongs to another target.
    pub(crate) fn take_over(client: &mut Client, load: &LoadRequest, target: &Table) -> Result<Progress> {
        let loads = Table::new(&*target.schema, LOADS);
        let (attempt, name, mode) = (load.attempt.to_string(), target.to_string(), mode_name(load.mode));
        let id = Some(load.load_id.as_str());
        let insert = format!(
            "INSERT INTO {} (load_id, target, mode, attempt) VALUES ($1, $2, $3, $4::int8) ON CONFLICT DO NOTHING",
            loads.sql()
        );
        client.update(&insert, &[id, Some(&name), Some(mode), Some(&attempt)])?;
        let select = format!(
            "SELECT target, mode, attempt, mark, rows, finished, shadow FROM {} WHERE load_id = $1 FOR UPDATE",
            loads.sql()
        );
        let row = client.query_one(&select, &[id])?;
        let (recorded_target, recorded_mode) = (row.text(0)?, row.text(1)?);
        if recorded_target != name || recorded_mode != mode {
            return Err(Error::conflict(format!(
                "load {} began as {recorded_mode} into {recorded_target} and cannot go on as {mode} into {name}; \
                 start a new run",
                load.load_id
            )));
        }
        let recorded: u64 = row.number(2)?;
        if recorded > load.attempt {
            return Err(taken_over(&load.load_id, target, load.attempt));
        }
        let progress = Progress {
            loads,
            load_id: load.load_id.clone(),
            attempt: load.attempt,
            target: target.clone(),
            mark: row.number(3)?,
            rows: row.number(4)?,
            finished: row.flag(5)?,
            shadow: row.opt(6).map(str::to_owned),
        };
        progress.change(
            client,
            "attempt = $2::int8, session = pg_backend_pid(), session_start = \
               (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())",
            "attempt <= $2::int8",
            &[],
        )?;
        Ok(progress)
    }

    /// Forgets what was committed: the shadow table that held it is gone. `form`: how the new one was made.
    pub(crate) fn restart(&mut self, client: &mut Client, form: &str) -> Result<()> {
        (self.mark, self.rows, self.shadow) = (0, 0, Some(form.to_owned()));
        self.change(
            client,
            "mark = 0, rows = 0, shadow = $3",
            "attempt = $2::int8",
            &[form],
        )
    }

    /// Records a mark and `more_rows`, in the transaction that holds them.
    ///
    /// # Errors
    /// `conflict` where another attempt has taken the load over; the transaction must then be rolled back.
    pub(crate) fn advance(&mut self, client: &mut Client, mark: u64, more_rows: u64) -> Result<()> {
        let rows = self.rows + more_rows;
        let values = [mark.to_string(), rows.to_string()];
        self.change(
            client,
            "mark = $3::int8, rows = $4::int8",
            "attempt = $2::int8 AND NOT finished",
            &[&values[0], &values[1]],
        )?;
        (self.mark, self.rows) = (mark, rows);
        Ok(())
    }

    /// Records the end, in the transaction that publishes the rows. Errors as for [`advance`](Self::advance).
    pub(crate) fn finish(&mut self, client: &mut Client) -> Result<()> {
        self.change(
            client,
            "finished = true",
            "attempt = $2::int8 AND NOT finished",
            &[],
        )
    }

    /// The error that stops this attempt, if a later one has taken the load over.
    pub(crate) fn superseded(&self, client: &mut Client) -> Option<Error> {
        let sql = format!("SELECT attempt FROM {} WHERE load_id = $1", self.loads.sql());
        let row = client.query_one(&sql, &[Some(&self.load_id)]).ok()?;
        let recorded: u64 = row.number(0).ok()?;
        (recorded > self.attempt).then(|| taken_over(&self.load_id, &self.target, self.attempt))
    }

    fn change(&self, client: &mut Client, set: &str, condition: &str, values: &[&str]) -> Result<()> {
        let sql = format!(
            "UPDATE {} SET {set}, updated_at = now() WHERE load_id = $1 AND {condition}",
            self.loads.sql()
        );
        let attempt = self.attempt.to_string();
        let mut all = vec![Some(self.load_id.as_str()), Some(attempt.as_str())];
        all.extend(values.iter().map(|value| Some(*value)));
        match client.update(&sql, &all)? {
            1 => Ok(()),
            _ => Err(taken_over(&self.load_id, &self.target, self.attempt)),
        }
    }
}

fn taken_over(load_id: &str, target: &Table, attempt: u64) -> Error {
    Error::conflict(format!(
        "attempt {attempt} of load {load_id} into {target} stops: a later attempt has taken it over"
    ))
}

fn mode_name(mode: WriteMode) -> &'static str {
    match mode {
        WriteMode::Append => "append",
        WriteMode::Overwrite => "overwrite",
        WriteMode::Upsert => "upsert",
    }
}
