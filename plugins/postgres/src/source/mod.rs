//! The source: discovers tables and views, and reads each in one snapshot by binary COPY.

mod position;
mod query;
mod reader;

use setu_sdk::{BatchBuilder, Error, Field, ReadRequest, Result, Schema, Source, StreamInfo, StreamName};

use crate::catalog::{self, Kind, Relation, Scope};
use crate::client::Client;
use crate::config::{SourceConfig, TextType};
use crate::copy_out::{CopyOut, Grid};
use crate::decode::Decoder;
use crate::session::{self, Endpoint};
use crate::sql::Table;
use crate::types::Travel;
use position::{Position, Upper};
use query::Conditions;
use reader::{KeyColumns, PostgresReader, ReadColumn};

/// A Postgres database that is read from.
#[derive(Debug)]
pub struct PostgresSource {
    config: SourceConfig,
    endpoint: Endpoint,
}

impl Source for PostgresSource {
    type Config = SourceConfig;
    type Reader = PostgresReader;

    fn open(config: SourceConfig) -> Result<Self> {
        let endpoint = config.endpoint()?;
        Ok(PostgresSource { config, endpoint })
    }

    fn check(&mut self) -> Result<()> {
        let mut client = self.endpoint.connect()?;
        for schema in self.config.schemas.iter().flatten() {
            if !catalog::schema_exists(&mut client, schema)? {
                return Err(Error::config(format!(
                    "`schemas` names `{schema}`, which the database does not have"
                )));
            }
        }
        client.close();
        Ok(())
    }

    fn discover(&mut self) -> Result<Vec<StreamInfo>> {
        let mut client = self.endpoint.connect()?;
        session::begin_reading(&mut client)?;
        let relations = catalog::relations(&mut client, &Scope::Readable(self.config.schemas.as_deref()))?;
        client.close();
        Ok(relations
            .iter()
            .map(|relation| stream_info(relation, &self.config.as_text))
            .collect())
    }

    fn count(&mut self, request: &ReadRequest, limit: u64) -> Result<Option<u64>> {
        let (mut client, relation, storage) = self.begin(request)?;
        let (_, conditions) = conditions(&relation, &storage, request)?;
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM {} t{} LIMIT {limit}) counted",
            relation.table_expression(),
            conditions.open_filter()
        );
        let rows = client.query_one(&sql, &[])?.number(0)?;
        client.close();
        Ok(Some(rows))
    }

    fn read(&mut self, request: ReadRequest) -> Result<PostgresReader> {
        if request.range.as_ref().is_some_and(|range| !range.is_empty()) {
            return Err(Error::unsupported("a Postgres table is read as one range"));
        }
        let (mut client, relation, storage) = self.begin(&request)?;
        let (position, conditions) = conditions(&relation, &storage, &request)?;
        let until = match position.as_ref().and_then(|position| position.window.clone()) {
            Some(pinned) => pinned.until,
            None => upper_bound(&mut client, &relation, &conditions)?,
        };
        let filter = conditions.filter(until.as_deref())?;
        let clauses = format!("{filter}{}", conditions.order());
        let position = Position {
            table: storage,
            key: resume_key(&relation).to_vec(),
            after: Vec::new(),
            window: request.cursor.as_ref().map(|_| Upper { until }),
        };
        self.start(client, &relation, &request, &clauses, position)
    }
}

impl PostgresSource {
    /// A session in the snapshot of a read, the relation, and what tells its rows from others' where a read of it can
    /// be resumed.
    fn begin(&self, request: &ReadRequest) -> Result<(Client, Relation, String)> {
        let mut client = self.endpoint.connect()?;
        let system = catalog::system_identifier(&mut client);
        session::begin_reading(&mut client)?;
        let relation = find(&mut client, &request.name)?;
        let storage = if resume_key(&relation).is_empty() {
            String::new()
        } else {
            catalog::storage(&mut client, &relation, &system)?
        };
        Ok((client, relation, storage))
    }

    /// Starts the COPY. `clauses`: WHERE and ORDER BY. `position`: that of no row yet.
    fn start(
        &self,
        mut client: Client,
        relation: &Relation,
        request: &ReadRequest,
        clauses: &str,
        position: Position,
    ) -> Result<PostgresReader> {
        let whole = schema(relation, &self.config.as_text);
        let mut places = whole
            .select(request.columns.as_deref())
            .map_err(|error| error.context(&relation.table))?;
        let schema = whole.project(&places);
        let travel = |at: usize| relation.columns[at].catalog_type.logical(&self.config.as_text).2;

        let checked = client.query_one("SHOW server_encoding", &[])?.text(0)? == "SQL_ASCII";
        let columns = places.iter().zip(&schema.fields).map(|(&at, field)| ReadColumn {
            name: field.name.clone(),
            decoder: Decoder::new(travel(at), field.data_type, checked),
        });
        let columns = columns.collect();

        let until = position.window.as_ref().and_then(|window| window.until.clone());
        let mut key_places = Vec::new();
        for at in position.key.iter().filter_map(|name| whole.index_of(name)) {
            let place = places.iter().position(|&read| read == at).unwrap_or_else(|| {
                places.push(at);
                places.len() - 1
            });
            key_places.push((place, travel(at)));
        }
        let key = (!position.key.is_empty()).then_some(KeyColumns {
            places: key_places,
            position,
        });

        let list = query::select_list(places.iter().map(|&at| (&relation.columns[at], travel(at))));
        let sql = format!(
            "COPY (SELECT {list} FROM {} t{clauses}) TO STDOUT (FORMAT binary)",
            relation.table_expression()
        );
        let copy =
            CopyOut::start(client, &sql, places.len()).map_err(|error| error.context(&relation.table))?;
        Ok(PostgresReader {
            builder: BatchBuilder::new(&schema),
            schema,
            copy: Some(copy),
            columns,
            key,
            grid: Grid::default(),
            until,
        })
    }
}

/// The position that a request resumes at, if any, and the conditions of its rows.
fn conditions(
    relation: &Relation,
    storage: &str,
    request: &ReadRequest,
) -> Result<(Option<Position>, Conditions)> {
    let key = resume_key(relation);
    let position = match &request.resume_after {
        Some(_) if key.is_empty() => {
            return Err(Error::conflict(format!(
                "{} cannot be resumed: it has no primary key to resume by",
                relation.table
            )));
        }
        Some(bytes) => {
            let position = Position::decode(bytes, storage, key, request.cursor.is_some());
            Some(position.map_err(|error| error.context(&relation.table))?)
        }
        None => None,
    };
    let conditions = Conditions::new(relation, key, request.cursor.as_ref(), position.as_ref())?;
    Ok((position, conditions))
}

/// The relation of a stream.
fn find(client: &mut Client, name: &StreamName) -> Result<Relation> {
    let table = Table::new(name.namespace.as_deref().unwrap_or("public"), &*name.name);
    catalog::relation(client, &Scope::Stream(&table))?.ok_or_else(|| {
        Error::not_found(format!(
            "there is no table or view {table} in the database; `setu discover` lists those that can be read"
        ))
    })
}

/// The largest cursor value in the window, in the staged form.
fn upper_bound(client: &mut Client, relation: &Relation, conditions: &Conditions) -> Result<Option<String>> {
    let Some(sql) = conditions.upper_bound_sql(relation) else {
        return Ok(None);
    };
    let row = client.query_one(&sql, &[])?;
    row.opt(0)
        .map(|text| conditions.stage_upper_bound(text))
        .transpose()
}

/// The primary key where a read can resume by it, and nothing otherwise.
fn resume_key(relation: &Relation) -> &[String] {
    let all_are_keys = relation
        .primary_key
        .iter()
        .all(|name| relation.column(name).is_some_and(query::is_key));
    if all_are_keys { &relation.primary_key } else { &[] }
}

fn schema(relation: &Relation, as_text: &[TextType]) -> Schema {
    let field = |column: &catalog::CatalogColumn| {
        let (data_type, native_type, _) = column.catalog_type.logical(as_text);
        Field {
            name: column.name.clone(),
            data_type,
            nullable: !column.not_null,
            native_type,
        }
    };
    // A key of which the user may not read every column is none.
    let readable = relation
        .primary_key
        .iter()
        .all(|name| relation.column(name).is_some());
    let primary_key = if readable {
        relation.primary_key.clone()
    } else {
        Vec::new()
    };
    Schema {
        fields: relation.columns.iter().map(field).collect(),
        primary_key,
    }
}

fn stream_info(relation: &Relation, as_text: &[TextType]) -> StreamInfo {
    let is_cursor = |column: &&catalog::CatalogColumn| {
        let (_, _, travel) = column.catalog_type.logical(as_text);
        matches!(travel, Travel::Binary(base) if base.is_cursor())
    };
    StreamInfo {
        name: StreamName::new(&*relation.table.schema, &*relation.table.name),
        kind: relation.kind.name().to_owned(),
        schema: schema(relation, as_text),
        estimated_rows: relation.estimated_rows.filter(|_| relation.kind != Kind::View),
        cursors: relation
            .columns
            .iter()
            .filter(is_cursor)
            .map(|column| column.name.clone())
            .collect(),
        resumable: !resume_key(relation).is_empty(),
    }
}
