//! The table that a load ends in: created where it is missing, and checked to fit the stream.

use setu_sdk::{Error, Field, LoadRequest, Result, Schema};

use super::native;
use super::plan::Plan;
use super::progress;
use crate::catalog::{self, Kind, Relation, Scope};
use crate::client::Client;
use crate::session;
use crate::sql::{Table, ident, idents};

/// The table that a stream is written to.
pub(crate) fn table_of(load: &LoadRequest, schema: Option<&str>) -> Result<Table> {
    let stream = &load.target;
    let namespace = schema.or(stream.name.namespace.as_deref()).unwrap_or("public");
    catalog::check_name("schema", namespace)?;
    catalog::check_name("table", &stream.name.name)?;
    if stream.name.name == progress::LOADS {
        return Err(Error::config(format!(
            "a stream named {} cannot be written: the table of this name keeps the progress of loads",
            stream.name
        )));
    }
    for field in &stream.schema.fields {
        catalog::check_name("column", &field.name)?;
    }
    Ok(Table::new(namespace, &*stream.name.name))
}

/// The columns of a table that is created for a stream: name and type, as SQL. Must be called outside a transaction.
pub(crate) fn column_definitions(client: &mut Client, fields: &[Field], schema: &str) -> Result<Vec<String>> {
    let mut definitions = Vec::new();
    for field in fields {
        let sql_type = native::column_type(client, field, schema)?;
        let nullability = if field.nullable { "" } else { " NOT NULL" };
        definitions.push(format!("{} {sql_type}{nullability}", ident(&field.name)));
    }
    Ok(definitions)
}

/// Looks the table up.
///
/// # Errors
/// `unsupported` where the name stands for something that rows cannot be copied into.
pub(crate) fn find(client: &mut Client, table: &Table) -> Result<Option<Relation>> {
    let found = catalog::relation(client, &Scope::Target(table))?;
    match &found {
        Some(relation) if !matches!(relation.kind, Kind::Table | Kind::PartitionedTable) => {
            Err(Error::unsupported(format!(
                "{table} is a {}; rows can be written to tables only. Set `schema` to write elsewhere",
                relation.kind.name()
            )))
        }
        _ => Ok(found),
    }
}

/// Creates the table of an append or an upsert where it is missing, and returns it. Two loads that begin at once take
/// turns; must be called within a transaction.
pub(crate) fn ensure(
    client: &mut Client,
    table: &Table,
    schema: &Schema,
    definitions: &[String],
) -> Result<Relation> {
    if let Some(found) = find(client, table)? {
        return Ok(found);
    }
    session::take_turns(client, &table.to_string())?;
    if let Some(found) = find(client, table)? {
        return Ok(found);
    }
    let mut parts = definitions.to_vec();
    if !schema.primary_key.is_empty() {
        parts.push(format!(
            "PRIMARY KEY ({})",
            idents(schema.primary_key.iter().map(String::as_str))
        ));
    }
    client.execute(&format!("CREATE TABLE {} ({})", table.sql(), parts.join(", ")))?;
    find(client, table)?.ok_or_else(|| Error::internal(format!("{table} is gone right after it was created")))
}

/// The plan for a table that must fit.
///
/// # Errors
/// `config`, with everything that does not fit.
pub(crate) fn plan(relation: &Relation, fields: &[Field]) -> Result<Plan> {
    Plan::new(fields, relation).map_err(|problems| misfit(&relation.table, &problems))
}

/// What people are told about a table that does not fit the stream.
pub(crate) fn misfit(table: &Table, problems: &[String]) -> Error {
    Error::config(format!(
        "the table {table} does not fit the stream: {}. Alter or drop the table, or set `schema` to write elsewhere",
        problems.join("; ")
    ))
}

/// Checks that rows can be told apart by the stream's key.
///
/// # Errors
/// `config`, with the way out.
pub(crate) fn check_upsert_key(client: &mut Client, relation: &Relation, key: &[String]) -> Result<()> {
    let table = &relation.table;
    if key.is_empty() {
        return Err(Error::config(format!(
            "the stream for {table} has no primary key, which `write: upsert` goes by; set a key at the source, or \
             use `write: append` or `write: overwrite`"
        )));
    }
    // ON CONFLICT takes an index whose columns are exactly these, in any order, that holds at once and for all rows.
    let sql = "SELECT (SELECT array_agg(a.attname::text ORDER BY a.attname::text)::text \
           FROM unnest(i.indkey) WITH ORDINALITY k(attnum, place) \
           JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE k.place <= i.indnkeyatts) \
         = (SELECT array_agg(k ORDER BY k)::text FROM unnest($2::text[]) k) \
       FROM pg_index i WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indimmediate \
         AND i.indpred IS NULL AND i.indexprs IS NULL";
    let (oid, names) = (relation.oid.to_string(), array_literal(key));
    let rows = client.query(sql, &[Some(&oid), Some(&names)])?;
    if rows.iter().any(|row| row.opt(0) == Some("t")) {
        return Ok(());
    }
    Err(Error::config(format!(
        "{table} has no primary key or unique index on ({columns}), which `write: upsert` goes by; run: CREATE UNIQUE \
         INDEX ON {} ({columns})",
        table.sql(),
        columns = idents(key.iter().map(String::as_str)),
    )))
}

/// A Postgres array of texts.
fn array_literal(texts: &[String]) -> String {
    let quoted = texts
        .iter()
        .map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("{{{}}}", quoted.collect::<Vec<String>>().join(","))
}
