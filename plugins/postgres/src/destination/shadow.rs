//! Overwrite: rows gather in a shadow table beside the target, and `finish` puts them in the target's place in one
//! transaction.
//!
//! Where nothing hangs on the target, the shadow takes its name. Where something does (grants, views, foreign keys,
//! triggers, comments, further indexes, …), the target stays and is emptied and filled from the shadow, so that all of
//! it survives. Where neither can be done, the load is refused before a row is written.

use setu_sdk::{Error, Result, Schema, WriteMode};

use super::hanging;
use super::lost_rows;
use super::plan::Plan;
use super::progress::Progress;
use super::target;
use crate::catalog::{self, CatalogColumn, Relation};
use crate::client::Client;
use crate::hash::hash;
use crate::sql::{Table, ident, idents};

/// What a shadow was made like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It has the target's columns and types.
    Target,
    /// It has the stream's columns and types; there is no target, or one that gives way.
    Stream,
}

impl Form {
    /// As the progress table records it.
    fn name(self) -> &'static str {
        match self {
            Form::Target => "like target",
            Form::Stream => "like stream",
        }
    }

    fn recorded(progress: &Progress) -> Option<Form> {
        let recorded = progress.shadow.as_deref();
        [Form::Target, Form::Stream]
            .into_iter()
            .find(|form| recorded == Some(form.name()))
    }
}

/// The shadow table of a load. No two loads share one, so that no load can swap in another's rows.
pub(crate) fn table_of(target: &Table, load_id: &str) -> Table {
    Table::new(
        &*target.schema,
        format!("{}{:016x}", prefix(target), hash(load_id)),
    )
}

/// What the names of all shadows of a target begin with.
fn prefix(target: &Table) -> String {
    format!("_setu_new_{:016x}_", hash(&target.name))
}

/// Makes the shadow ready, within the transaction that took the load over: the one that an earlier attempt filled, or a
/// new one, with the load's progress set back.
///
/// # Errors
/// `config` where the swap could not keep what hangs on the target.
pub(crate) fn prepare(
    client: &mut Client,
    progress: &mut Progress,
    load_id: &str,
    schema: &Schema,
    definitions: &[String],
) -> Result<Relation> {
    let table = progress.target.clone();
    let shadow = table_of(&table, load_id);
    drop_strays(client, &table, &shadow)?;
    let existing = target::find(client, &table)?;
    let form = match &existing {
        None => Form::Stream,
        Some(existing) => choose(client, existing, schema)?.form,
    };
    if let Some(found) = target::find(client, &shadow)? {
        let still_fits = existing
            .as_ref()
            .is_none_or(|existing| fits(&found, existing, form, schema));
        if Form::recorded(progress) == Some(form) && still_fits {
            return Ok(found);
        }
        client.execute(&format!("DROP TABLE {}", shadow.sql()))?;
    }
    if let (Form::Stream, Some(existing)) = (form, &existing) {
        setu_sdk::log::warn!(
            "{} does not fit the stream and will be replaced by a table with the stream's columns",
            existing.table
        );
    }
    create(client, &shadow, existing.as_ref(), form, definitions)?;
    adjust_not_null(client, &shadow, existing.as_ref(), schema)?;
    progress.restart(client, form.name())?;
    target::find(client, &shadow)?
        .ok_or_else(|| Error::internal("the shadow table is gone right after it was created"))
}

/// Drops the shadows that other loads left beside the target.
fn drop_strays(client: &mut Client, table: &Table, own: &Table) -> Result<()> {
    let sql = "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND starts_with(tablename, $2) AND tablename <> $3";
    let values = [Some(table.schema.as_str()), Some(&prefix(table)), Some(&own.name)];
    for row in client.query(sql, &values)? {
        let stray = Table::new(&*table.schema, row.text(0)?);
        client.execute(&format!("DROP TABLE {}", stray.sql()))?;
    }
    Ok(())
}

/// How the rows get into the target's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    form: Form,
    /// Whether the target can be dropped for the shadow: nothing hangs on it.
    gives_way: bool,
}

/// Chooses the way for a target as it is now.
///
/// # Errors
/// `config` where there is none that keeps what hangs on the target.
fn choose(client: &mut Client, existing: &Relation, schema: &Schema) -> Result<Way> {
    let Err(mut problems) = Plan::new(&schema.fields, existing) else {
        let gives_way = hanging::for_its_columns(client, existing, schema)?.is_empty();
        if !gives_way {
            check_can_be_refilled(client, existing)?;
        }
        return Ok(Way {
            form: Form::Target,
            gives_way,
        });
    };
    let hanging = hanging::for_other_columns(client, existing, schema)?;
    if hanging.is_empty() {
        return Ok(Way {
            form: Form::Stream,
            gives_way: true,
        });
    }
    problems.push(format!(
        "it cannot be replaced, because of {}",
        hanging.join(", ")
    ));
    Err(target::misfit(&existing.table, &problems))
}

fn create(
    client: &mut Client,
    shadow: &Table,
    existing: Option<&Relation>,
    form: Form,
    definitions: &[String],
) -> Result<()> {
    let columns = match (form, existing) {
        (Form::Target, Some(existing)) => format!("LIKE {} INCLUDING STORAGE", existing.table.sql()),
        _ => definitions.join(", "),
    };
    client.execute(&format!("CREATE TABLE {} ({columns})", shadow.sql()))
}

/// What the target says of nulls holds for the shadow; but what the target's defaults would fill in stays empty there.
fn adjust_not_null(
    client: &mut Client,
    shadow: &Table,
    existing: Option<&Relation>,
    schema: &Schema,
) -> Result<()> {
    let columns = target::find(client, shadow)?
        .map(|shadow| shadow.columns)
        .unwrap_or_default();
    let set = |client: &mut Client, column: &str, action: &str| {
        client.execute(&format!(
            "ALTER TABLE {} ALTER {} {action} NOT NULL",
            shadow.sql(),
            ident(column)
        ))
    };
    for column in &columns {
        let demanded = existing
            .and_then(|existing| existing.column(&column.name))
            .is_some_and(|column| column.not_null);
        if schema.index_of(&column.name).is_none() {
            if column.not_null {
                set(client, &column.name, "DROP")?;
            }
        } else if demanded && !column.not_null {
            set(client, &column.name, "SET")?;
        }
    }
    Ok(())
}

/// Whether a shadow of this form can still stand for the target, which may have been altered since the shadow was made.
fn fits(shadow: &Relation, existing: &Relation, form: Form, schema: &Schema) -> bool {
    let is_like = |column: &CatalogColumn| match shadow.column(&column.name) {
        Some(own) => {
            (form == Form::Stream || own.catalog_type == column.catalog_type)
                && (own.not_null || !column.not_null || schema.index_of(&column.name).is_none())
        }
        None => form == Form::Stream,
    };
    (form == Form::Stream || shadow.columns.len() == existing.columns.len())
        && existing.columns.iter().all(is_like)
}

/// Puts the shadow's rows in the target's place, within the transaction that ends the load.
pub(crate) fn publish(
    client: &mut Client,
    progress: &Progress,
    load_id: &str,
    schema: &Schema,
) -> Result<()> {
    let table = &progress.target;
    let shadow = table_of(table, load_id);
    let form = Form::recorded(progress).unwrap_or(Form::Stream);
    let Some(existing) = target::find(client, table)? else {
        add_primary_key(client, &shadow, &schema.primary_key)?;
        return rename(client, &shadow, table, None);
    };
    let key_name = primary_key_name(client, &existing)?;
    let key = key_of(&existing, form, schema);
    let gave_way = choose(client, &existing, schema)?.gives_way;
    if gave_way {
        // Before the lock: building the key's index takes time, during which the old table can be read.
        add_primary_key(client, &shadow, key)?;
    }
    client.execute(&format!(
        "LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
        existing.table_expression()
    ))?;
    let altered = || {
        Error::conflict(format!(
            "{table} was altered while rows gathered to take the place of its own; the next attempt starts over"
        ))
    };
    let (Some(locked), Some(filled)) = (target::find(client, table)?, target::find(client, &shadow)?) else {
        return Err(altered());
    };
    let way = choose(client, &locked, schema)?;
    if way.form != form || !fits(&filled, &locked, form, schema) {
        return Err(altered());
    }
    if way.gives_way {
        if !gave_way || key != key_of(&locked, form, schema) {
            return Err(altered());
        }
        client.execute(&format!("DROP TABLE {}", table.sql()))?;
        return rename(client, &shadow, table, key_name.as_deref());
    }
    refill(client, &locked, &shadow, schema, progress.rows)
}

/// The key of a shadow that takes the target's name.
fn key_of<'a>(existing: &'a Relation, form: Form, schema: &'a Schema) -> &'a [String] {
    let keeps_its_own = form == Form::Target || schema.primary_key.is_empty();
    if keeps_its_own && !existing.primary_key.is_empty() {
        &existing.primary_key
    } else {
        &schema.primary_key
    }
}

/// Empties the target and fills it with the `rows` of the shadow. The rows of a table's inheritance children are the
/// children's and stay.
fn refill(
    client: &mut Client,
    existing: &Relation,
    shadow: &Table,
    schema: &Schema,
    rows: u64,
) -> Result<()> {
    check_can_be_refilled(client, existing)?;
    target::plan(existing, &schema.fields)?;
    let columns = idents(schema.fields.iter().map(|field| field.name.as_str()));
    let list = if columns.is_empty() {
        String::new()
    } else {
        format!(" ({columns})")
    };
    client.execute(&format!("TRUNCATE {}", existing.table_expression()))?;
    let insert = format!(
        "INSERT INTO {}{list} OVERRIDING SYSTEM VALUE SELECT {columns} FROM {}",
        existing.table.sql(),
        shadow.sql()
    );
    let arrived = client.update(&insert, &[])?;
    lost_rows::refuse_loss(client, &existing.table, rows, arrived)?;
    client.execute(&format!("DROP TABLE {}", shadow.sql()))
}

/// What a primary key is called until the shadow has its final name.
fn temporary_key_name(shadow: &Table) -> String {
    format!("{}_pk", shadow.name)
}

fn add_primary_key(client: &mut Client, shadow: &Table, key: &[String]) -> Result<()> {
    if key.is_empty() {
        return Ok(());
    }
    let columns = idents(key.iter().map(String::as_str));
    client.execute(&format!(
        "ALTER TABLE {} ADD CONSTRAINT {} PRIMARY KEY ({columns})",
        shadow.sql(),
        ident(&temporary_key_name(shadow))
    ))
}

/// Gives the shadow the target's name, and its key the old key's name or the one that Postgres would choose.
fn rename(client: &mut Client, shadow: &Table, table: &Table, key_name: Option<&str>) -> Result<()> {
    client.execute(&format!(
        "ALTER TABLE {} RENAME TO {}",
        shadow.sql(),
        ident(&table.name)
    ))?;
    let has_key = "SELECT 1 FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid \
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2 AND k.contype = 'p'";
    let schema = Some(table.schema.as_str());
    if client.query(has_key, &[schema, Some(&table.name)])?.is_empty() {
        return Ok(());
    }
    let taken = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
    let names = key_name
        .map(str::to_owned)
        .into_iter()
        .chain(key_names(&table.name));
    for name in names {
        if client.query(taken, &[schema, Some(&name)])?.is_empty() {
            return client.execute(&format!(
                "ALTER TABLE {} RENAME CONSTRAINT {} TO {}",
                table.sql(),
                ident(&temporary_key_name(shadow)),
                ident(&name)
            ));
        }
    }
    Ok(())
}

/// The names that Postgres gives to primary keys, in the order of its preference: the table's name, cut so that all
/// fits, and a number where it must.
fn key_names(table: &str) -> impl Iterator<Item = String> + '_ {
    (0..100).map(move |number| {
        let end = match number {
            0 => "_pkey".to_owned(),
            _ => format!("_pkey{number}"),
        };
        let room = catalog::MAX_NAME_BYTES - end.len();
        let cut = (0..=room.min(table.len()))
            .rev()
            .find(|&at| table.is_char_boundary(at))
            .unwrap_or(0);
        format!("{}{end}", &table[..cut])
    })
}

fn primary_key_name(client: &mut Client, relation: &Relation) -> Result<Option<String>> {
    let sql = "SELECT conname FROM pg_constraint WHERE conrelid = $1::oid AND contype = 'p'";
    let rows = client.query(sql, &[Some(&relation.oid.to_string())])?;
    Ok(rows.first().and_then(|row| row.opt(0)).map(str::to_owned))
}

/// Refuses a target that cannot be emptied and filled again: other tables refer to it, so that emptying it would break,
/// or cascade into, what they hold; or its rules would divert the rows.
fn check_can_be_refilled(client: &mut Client, relation: &Relation) -> Result<()> {
    let sql = "WITH tree AS (SELECT $1::oid AS oid UNION SELECT relid FROM pg_partition_tree($1::oid)) \
        SELECT DISTINCT pg_describe_object('pg_constraint'::regclass, oid, 0) FROM pg_constraint \
        WHERE contype = 'f' AND confrelid IN (SELECT oid FROM tree) AND conrelid NOT IN (SELECT oid FROM tree) \
        ORDER BY 1";
    let rows = client.query(sql, &[Some(&relation.oid.to_string())])?;
    let keys: Vec<&str> = rows.iter().filter_map(|row| row.opt(0)).collect();
    if keys.is_empty() {
        return lost_rows::refuse_rules(client, relation, WriteMode::Overwrite);
    }
    Err(Error::config(format!(
        "{} cannot be overwritten, because other tables refer to it ({}); use `write: upsert`, or drop these foreign \
         keys",
        relation.table,
        keys.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_as_postgres_would_name_it() {
        let first = |table: &str| key_names(table).next().unwrap_or_default();
        assert_eq!(first("t"), "t_pkey");
        assert_eq!(key_names("t").nth(2).as_deref(), Some("t_pkey2"));
        // A character is not cut in two.
        let long = format!("{}ü", "x".repeat(57));
        assert_eq!(first(&long), format!("{}_pkey", "x".repeat(57)));
        assert_eq!(first(&"x".repeat(63)).len(), 63);
    }
}
