//! Overwrite: rows gather in a shadow table beside the target, and `finish` puts them in the target's place in one
//! transaction.
//!
//! Where nothing hangs on the target, the shadow takes its name. Where something does (grants, views, foreign keys,
//! triggers, comments, further indexes, …), the target stays and is emptied and filled from the shadow, so that all of
//! it survives. Where neither can be done, the load is refused before a row is written.

use setu_sdk::{Error, Result, Schema};

use super::plan::Plan;
use super::progress::{self, Progress};
use super::target;
use crate::catalog::{Kind, Relation};
use crate::client::Client;
use crate::sql::{Table, ident, idents};

/// The shadow has the target's columns and types.
const LIKE_TARGET: &str = "like target";
/// The shadow has the stream's columns and types; there is no target, or one that gives way.
const LIKE_STREAM: &str = "like stream";

/// The shadow table of a load. No two loads share one, so that no load can swap in another's rows.
pub(crate) fn table_of(target: &Table, load_id: &str) -> Table {
    Table::new(
        &*target.schema,
        format!("{}{:016x}", prefix(target), progress::hash(load_id)),
    )
}

/// What the names of all shadows of a target begin with.
fn prefix(target: &Table) -> String {
    format!("_setu_new_{:016x}_", progress::hash(&target.name))
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
    if let Some(found) = target::find(client, &shadow)? {
        if progress.shadow.is_some() {
            return Ok(found);
        }
        client.execute(&format!("DROP TABLE {}", shadow.sql()))?;
    }
    let form = match target::find(client, &table)? {
        None => LIKE_STREAM,
        Some(existing) => choose_form(client, &existing, schema)?,
    };
    if form == LIKE_TARGET {
        create_like(client, &shadow, &table, schema)?;
    } else {
        client.execute(&format!(
            "CREATE TABLE {} ({})",
            shadow.sql(),
            definitions.join(", ")
        ))?;
    }
    progress.restart(client, form)?;
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

fn choose_form(client: &mut Client, existing: &Relation, schema: &Schema) -> Result<&'static str> {
    let hanging = hanging_on(client, existing)?;
    match Plan::new(&schema.fields, existing) {
        Ok(_) => {
            if !hanging.is_empty() {
                check_can_be_emptied(client, existing)?;
            }
            Ok(LIKE_TARGET)
        }
        Err(problems) if hanging.is_empty() => {
            setu_sdk::log::info!(
                "{} is replaced by a table with the stream's columns: {}",
                existing.table,
                problems.join("; ")
            );
            Ok(LIKE_STREAM)
        }
        Err(mut problems) => {
            problems.push(format!(
                "it cannot be replaced, because of {}",
                hanging.join(", ")
            ));
            Err(target::misfit(&existing.table, &problems))
        }
    }
}

fn create_like(client: &mut Client, shadow: &Table, table: &Table, schema: &Schema) -> Result<()> {
    client.execute(&format!(
        "CREATE TABLE {} (LIKE {} INCLUDING STORAGE)",
        shadow.sql(),
        table.sql()
    ))?;
    // What the target's defaults would fill in stays empty in the shadow.
    let columns = target::find(client, shadow)?
        .map(|relation| relation.columns)
        .unwrap_or_default();
    for column in columns
        .iter()
        .filter(|column| column.not_null && schema.index_of(&column.name).is_none())
    {
        client.execute(&format!(
            "ALTER TABLE {} ALTER {} DROP NOT NULL",
            shadow.sql(),
            ident(&column.name)
        ))?;
    }
    Ok(())
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
    let Some(existing) = target::find(client, table)? else {
        add_primary_key(client, &shadow, &schema.primary_key)?;
        return rename(client, &shadow, table, None);
    };
    let can_give_way =
        |hanging: &[String]| hanging.is_empty() && existing.kind == Kind::Table && !existing.is_partition;
    let key_name = primary_key_name(client, &existing)?;
    if can_give_way(&hanging_on(client, &existing)?) {
        // Before the lock: building the key's index takes time, during which the old table can be read.
        let like_target = progress.shadow.as_deref() == Some(LIKE_TARGET) && !existing.primary_key.is_empty();
        let key = if like_target {
            &existing.primary_key
        } else {
            &schema.primary_key
        };
        add_primary_key(client, &shadow, key)?;
    }
    client.execute(&format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", table.sql()))?;
    if can_give_way(&hanging_on(client, &existing)?) {
        client.execute(&format!("DROP TABLE {}", table.sql()))?;
        return rename(client, &shadow, table, key_name.as_deref());
    }
    check_can_be_emptied(client, &existing)?;
    target::plan(&existing, &schema.fields)?;
    let columns = idents(schema.fields.iter().map(|field| field.name.as_str()));
    let list = if columns.is_empty() {
        String::new()
    } else {
        format!(" ({columns})")
    };
    client.execute(&format!("TRUNCATE {}", table.sql()))?;
    client.execute(&format!(
        "INSERT INTO {}{list} OVERRIDING SYSTEM VALUE SELECT {columns} FROM {}",
        table.sql(),
        shadow.sql()
    ))?;
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
    let chosen = match key_name {
        Some(name) => name.to_owned(),
        None => format!("{}_pkey", table.name),
    };
    let taken = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE n.nspname = $1 AND (c.relname = $2 OR octet_length($2) > 63)";
    let has_key = "SELECT 1 FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid \
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2 AND k.contype = 'p'";
    let schema = Some(table.schema.as_str());
    let is_taken = !client.query(taken, &[schema, Some(&chosen)])?.is_empty();
    if is_taken || client.query(has_key, &[schema, Some(&table.name)])?.is_empty() {
        return Ok(());
    }
    client.execute(&format!(
        "ALTER TABLE {} RENAME CONSTRAINT {} TO {}",
        table.sql(),
        ident(&temporary_key_name(shadow)),
        ident(&chosen)
    ))
}

fn primary_key_name(client: &mut Client, relation: &Relation) -> Result<Option<String>> {
    let sql = "SELECT conname FROM pg_constraint WHERE conrelid = $1::oid AND contype = 'p'";
    let rows = client.query(sql, &[Some(&relation.oid.to_string())])?;
    Ok(rows.first().and_then(|row| row.opt(0)).map(str::to_owned))
}

/// Refuses a target that other tables refer to: emptying it would break, or cascade into, what they hold.
fn check_can_be_emptied(client: &mut Client, relation: &Relation) -> Result<()> {
    let sql = "SELECT pg_describe_object('pg_constraint'::regclass, oid, 0) FROM pg_constraint \
        WHERE contype = 'f' AND confrelid = $1::oid AND conrelid <> confrelid ORDER BY 1";
    let rows = client.query(sql, &[Some(&relation.oid.to_string())])?;
    let keys: Vec<&str> = rows.iter().filter_map(|row| row.opt(0)).collect();
    if keys.is_empty() {
        return Ok(());
    }
    Err(Error::config(format!(
        "{} cannot be overwritten, because other tables refer to it ({}); use `write: upsert`, or drop these foreign \
         keys",
        relation.table,
        keys.join(", ")
    )))
}

/// Everything that would be lost with the table, in words: what depends on it, and what it was given beyond its
/// columns and its primary key.
fn hanging_on(client: &mut Client, relation: &Relation) -> Result<Vec<String>> {
    let sql = "WITH t AS (SELECT * FROM pg_class WHERE oid = $1::oid) \
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM t JOIN pg_depend d \
          ON (d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid \
            OR d.refclassid = 'pg_type'::regclass AND d.refobjid = t.reltype) \
          WHERE d.deptype IN ('n', 'a', 'x') AND NOT (d.classid = 'pg_constraint'::regclass AND EXISTS \
            (SELECT 1 FROM pg_constraint k WHERE k.oid = d.objid AND k.conrelid = t.oid AND k.contype IN ('p', 'n'))) \
        UNION SELECT 'its grants' FROM t WHERE relacl IS NOT NULL \
        UNION SELECT 'the grants of column ' || quote_ident(a.attname) FROM t JOIN pg_attribute a ON a.attrelid = t.oid \
          WHERE a.attacl IS NOT NULL AND NOT a.attisdropped \
        UNION SELECT 'the options of column ' || quote_ident(a.attname) FROM t JOIN pg_attribute a \
          ON a.attrelid = t.oid WHERE NOT a.attisdropped AND a.attnum > 0 \
            AND (a.attidentity <> '' OR a.attoptions IS NOT NULL) \
        UNION SELECT 'its comments' FROM t JOIN pg_description c ON c.classoid = 'pg_class'::regclass \
          AND c.objoid = t.oid \
        UNION SELECT 'its security labels' FROM t JOIN pg_seclabel l ON l.classoid = 'pg_class'::regclass \
          AND l.objoid = t.oid \
        UNION SELECT 'its owner ' || quote_ident(pg_get_userbyid(relowner)) FROM t \
          WHERE pg_get_userbyid(relowner) <> current_user \
        UNION SELECT 'its row level security' FROM t WHERE relrowsecurity OR relforcerowsecurity \
        UNION SELECT 'its storage options' FROM t WHERE reloptions IS NOT NULL OR reltablespace <> 0 \
          OR relpersistence <> 'p' OR reloftype <> 0 \
        UNION SELECT 'its replica identity' FROM t WHERE relreplident <> 'd' \
        UNION SELECT 'its inheritance' FROM t JOIN pg_inherits i ON i.inhrelid = t.oid \
        ORDER BY 1";
    let rows = client.query(sql, &[Some(&relation.oid.to_string())])?;
    Ok(rows
        .iter()
        .filter_map(|row| row.opt(0))
        .map(str::to_owned)
        .collect())
}
