//! The destination: writes loads into tables, each commit in one transaction with its mark.

mod hanging;
mod lost_rows;
mod native;
mod plan;
mod progress;
mod shadow;
mod target;
mod writer;

use setu_sdk::{Capabilities, Destination, LoadRequest, Result, WriteMode};

use crate::client::Client;
use crate::config::DestinationConfig;
use crate::session::{self, Endpoint};
use plan::Plan;
use progress::Progress;
use writer::PostgresWriter;

/// A Postgres database that is written to.
#[derive(Debug)]
pub struct PostgresDestination {
    config: DestinationConfig,
    endpoint: Endpoint,
}

impl Destination for PostgresDestination {
    type Config = DestinationConfig;
    type Writer = PostgresWriter;

    fn open(config: DestinationConfig) -> Result<Self> {
        let endpoint = config.endpoint()?;
        Ok(PostgresDestination { config, endpoint })
    }

    fn check(&mut self) -> Result<()> {
        self.endpoint.connect()?.close();
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write_modes: vec![WriteMode::Append, WriteMode::Overwrite, WriteMode::Upsert],
            transactional: true,
        }
    }

    fn begin(&mut self, load: LoadRequest) -> Result<PostgresWriter> {
        let table = target::table_of(&load, self.config.schema.as_deref())?;
        let mut client = self.connect(&load)?;
        progress::prepare_schema(&mut client, &table.schema)?;
        Progress::end_earlier_session(&mut client, &table.schema, &load);
        let schema = &load.target.schema;
        // Outside of the transaction, which a type's name that is none would break.
        let definitions = target::column_definitions(&mut client, &schema.fields, &table.schema)?;

        session::begin_writing(&mut client)?;
        client.execute("SET LOCAL lock_timeout = '60s'")?;
        let mut progress = Progress::take_over(&mut client, &load, &table)?;
        if progress.finished {
            client.execute("COMMIT")?;
            let nothing = Plan { columns: Vec::new() };
            return Ok(PostgresWriter::new(
                self.endpoint.clone(),
                client,
                progress,
                load,
                table,
                nothing,
            ));
        }
        let relation = match load.mode {
            WriteMode::Overwrite => {
                shadow::prepare(&mut client, &mut progress, &load.load_id, schema, &definitions)?
            }
            WriteMode::Append | WriteMode::Upsert => {
                target::ensure(&mut client, &table, schema, &definitions)?
            }
        };
        let plan = target::plan(&relation, &schema.fields)?;
        if load.mode == WriteMode::Upsert {
            target::check_upsert_key(&mut client, &relation, &schema.primary_key)?;
        }
        if load.mode != WriteMode::Overwrite && writer::is_staged(load.mode, &plan) {
            lost_rows::refuse_rules(&mut client, &relation, load.mode)?;
        }
        client.execute("COMMIT")?;
        Ok(PostgresWriter::new(
            self.endpoint.clone(),
            client,
            progress,
            load,
            relation.table,
            plan,
        ))
    }
}

impl PostgresDestination {
    /// A session that a later attempt can tell from others.
    fn connect(&self, load: &LoadRequest) -> Result<Client> {
        let mut endpoint = self.endpoint.clone();
        endpoint.info.application_name = Some(progress::session_name(&load.load_id));
        endpoint.connect()
    }
}
