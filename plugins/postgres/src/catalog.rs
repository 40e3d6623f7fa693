//! What the server's catalogue says of tables: kinds, columns with their types, keys, estimates. Used by both halves.

use setu_sdk::{Error, Result};

use crate::client::{Client, Row};
use crate::hash::hash;
use crate::sql::{Table, ident};
use crate::types::CatalogType;

/// What kind of thing a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Table,
    PartitionedTable,
    View,
    MaterializedView,
    ForeignTable,
}

impl Kind {
    fn from_relkind(relkind: &str) -> Option<Kind> {
        Some(match relkind {
            "r" => Kind::Table,
            "p" => Kind::PartitionedTable,
            "v" => Kind::View,
            "m" => Kind::MaterializedView,
            "f" => Kind::ForeignTable,
            _ => return None,
        })
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::PartitionedTable => "partitioned table",
            Kind::View => "view",
            Kind::MaterializedView => "materialized view",
            Kind::ForeignTable => "foreign table",
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct CatalogColumn {
    pub(crate) name: String,
    pub(crate) catalog_type: CatalogType,
    /// The base type's name for casts, without a length or precision.
    pub(crate) cast: String,
    pub(crate) is_enum: bool,
    pub(crate) not_null: bool,
    /// Something fills it where an INSERT leaves it out.
    pub(crate) has_default: bool,
    /// `GENERATED ALWAYS AS (…) STORED`: cannot be written.
    pub(crate) is_generated: bool,
}

/// A table, view or the like.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    pub(crate) oid: u32,
    pub(crate) table: Table,
    pub(crate) kind: Kind,
    pub(crate) estimated_rows: Option<u64>,
    pub(crate) columns: Vec<CatalogColumn>,
    /// Names in key order.
    pub(crate) primary_key: Vec<String>,
}

impl Relation {
    /// How it stands in FROM. A table with children by inheritance is read without their rows, which are streams of
    /// their own.
    pub(crate) fn table_expression(&self) -> String {
        let only = if self.kind == Kind::Table { "ONLY " } else { "" };
        format!("{only}{}", self.table.sql())
    }

    /// The column of this name.
    pub(crate) fn column(&self, name: &str) -> Option<&CatalogColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// Which relations to look up.
pub(crate) enum Scope<'a> {
    /// This one with all its columns.
    Target(&'a Table),
    /// This one with the columns that the user may read.
    Stream(&'a Table),
    /// All that the user may read, in these schemas or in all but the system's; partitions are left out.
    Readable(Option<&'a [String]>),
}

impl Scope<'_> {
    /// A condition on `pg_class c` and `pg_namespace n`, and its values.
    fn condition(&self) -> (String, Vec<String>) {
        match self {
            Scope::Target(table) | Scope::Stream(table) => (
                "n.nspname = $1 AND c.relname = $2".to_owned(),
                vec![table.schema.clone(), table.name.clone()],
            ),
            Scope::Readable(schemas) => {
                let readable = "NOT c.relispartition AND has_schema_privilege(n.oid, 'USAGE') AND \
                    has_any_column_privilege(c.oid, 'SELECT') AND c.relname !~ '^_setu_(loads$|new_)'";
                match schemas {
                    Some(schemas) => {
                        let places: Vec<String> = (1..=schemas.len()).map(|at| format!("${at}")).collect();
                        // With no schema listed nothing is found.
                        let list = if places.is_empty() {
                            "NULL".to_owned()
                        } else {
                            places.join(", ")
                        };
                        (format!("{readable} AND n.nspname IN ({list})"), schemas.to_vec())
                    }
                    None => (
                        format!("{readable} AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"),
                        Vec::new(),
                    ),
                }
            }
        }
    }
}

/// Looks up relations, ordered by schema and name.
pub(crate) fn relations(client: &mut Client, scope: &Scope<'_>) -> Result<Vec<Relation>> {
    let (condition, values) = scope.condition();
    let values: Vec<Option<&str>> = values.iter().map(|value| Some(value.as_str())).collect();
    let columns = if matches!(scope, Scope::Target(_)) {
        "true"
    } else {
        "has_column_privilege(a.attrelid, a.attnum, 'SELECT')"
    };
    let from = format!(
        "pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {condition}"
    );

    // The rows of a partitioned table are those of its partitions.
    let sql = format!(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, \
           CASE WHEN c.relkind = 'p' THEN (SELECT sum(greatest(p.reltuples, 0)) FROM pg_partition_tree(c.oid) t \
             JOIN pg_class p ON p.oid = t.relid WHERE t.isleaf) \
           ELSE nullif(c.reltuples, -1) END::pg_catalog.numeric::int8 \
         FROM {from} ORDER BY n.nspname, c.relname"
    );
    let mut relations = Vec::new();
    for row in client.query(&sql, &values)? {
        relations.extend(read_relation(&row)?);
    }

    // Domains are followed down, as often as they stand upon each other.
    let sql = format!(
        "WITH RECURSIVE columns AS (SELECT a.* FROM pg_attribute a JOIN (SELECT c.oid FROM {from}) c \
             ON a.attrelid = c.oid WHERE a.attnum > 0 AND NOT a.attisdropped), \
         types AS (SELECT attrelid, attnum, atttypid AS type, atttypmod AS modifier FROM columns \
           UNION ALL SELECT b.attrelid, b.attnum, t.typbasetype, t.typtypmod \
             FROM types b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd') \
         SELECT a.attrelid, a.attname, b.type, b.modifier, b.type <> a.atttypid, \
           format_type(a.atttypid, a.atttypmod), format_type(b.type, -1), t.typtype = 'e', a.attnotnull, \
           a.atthasdef OR a.attidentity <> '' OR d.typdefault IS NOT NULL, a.attgenerated <> '' \
         FROM columns a JOIN types b ON b.attrelid = a.attrelid AND b.attnum = a.attnum \
           JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd' JOIN pg_type d ON d.oid = a.atttypid \
         WHERE {columns} \
         ORDER BY a.attrelid, a.attnum"
    );
    attach(&mut relations, client.query(&sql, &values)?, |relation, row| {
        relation.columns.push(read_column(row)?);
        Ok(())
    })?;

    let sql = format!(
        "SELECT i.indrelid, a.attname FROM pg_index i JOIN (SELECT c.oid FROM {from}) c ON c.oid = i.indrelid \
         CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(attnum, place) \
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum \
         WHERE i.indisprimary AND i.indisvalid AND k.place <= i.indnkeyatts ORDER BY i.indrelid, k.place"
    );
    attach(&mut relations, client.query(&sql, &values)?, |relation, row| {
        relation.primary_key.push(row.text(1)?.to_owned());
        Ok(())
    })?;
    Ok(relations)
}

/// Looks up one relation.
pub(crate) fn relation(client: &mut Client, scope: &Scope<'_>) -> Result<Option<Relation>> {
    Ok(relations(client, scope)?.into_iter().next())
}

fn read_relation(row: &Row) -> Result<Option<Relation>> {
    let Some(kind) = Kind::from_relkind(row.text(3)?) else {
        return Ok(None);
    };
    Ok(Some(Relation {
        oid: row.number(0)?,
        table: Table::new(row.text(1)?, row.text(2)?),
        kind,
        estimated_rows: row.opt(4).and_then(|rows| rows.parse().ok()),
        columns: Vec::new(),
        primary_key: Vec::new(),
    }))
}

fn read_column(row: &Row) -> Result<CatalogColumn> {
    Ok(CatalogColumn {
        name: row.text(1)?.to_owned(),
        catalog_type: CatalogType {
            base_oid: row.number(2)?,
            typmod: row.number(3)?,
            is_domain: row.flag(4)?,
            name: row.text(5)?.to_owned(),
        },
        cast: row.text(6)?.to_owned(),
        is_enum: row.flag(7)?,
        not_null: row.flag(8)?,
        has_default: row.flag(9)?,
        is_generated: row.flag(10)?,
    })
}

/// Hands each row to the relation whose object id stands first in it.
fn attach(
    relations: &mut [Relation],
    rows: Vec<Row>,
    mut add: impl FnMut(&mut Relation, &Row) -> Result<()>,
) -> Result<()> {
    let places: std::collections::HashMap<u32, usize> = relations
        .iter()
        .enumerate()
        .map(|(at, relation)| (relation.oid, at))
        .collect();
    for row in rows {
        if let Some(&at) = places.get(&row.number(0)?) {
            add(&mut relations[at], &row)?;
        }
    }
    Ok(())
}

/// What tells a table's stored rows from those of any other table, and from its own before it was made anew, emptied by
/// TRUNCATE, or written anew by VACUUM FULL, CLUSTER and the like. `system`: of [`system_identifier`].
pub(crate) fn storage(client: &mut Client, relation: &Relation, system: &str) -> Result<String> {
    let sql = "SELECT oid || '/' || coalesce(pg_relation_filenode(oid), 0) FROM \
        (SELECT $1::oid AS oid UNION SELECT relid FROM pg_partition_tree($1::oid)) tree ORDER BY oid";
    let oid = relation.oid.to_string();
    let files = client.query(sql, &[Some(&oid)])?;
    let files: Result<Vec<&str>> = files.iter().map(|row| row.text(0)).collect();
    Ok(match files?.as_slice() {
        [own] => format!("{system}/{own}"),
        partitions => format!("{system}/{oid}/{:016x}", hash(&partitions.join(" "))),
    })
}

/// The number that a server got when it was set up and that its physical replicas share; empty where the server does
/// not tell. Must not be called within a transaction, which a refusal would break.
pub(crate) fn system_identifier(client: &mut Client) -> String {
    let row = client.query_one("SELECT system_identifier FROM pg_control_system()", &[]);
    row.ok()
        .and_then(|row| row.opt(0).map(str::to_owned))
        .unwrap_or_default()
}

/// Whether a schema exists.
pub(crate) fn schema_exists(client: &mut Client, schema: &str) -> Result<bool> {
    let found = client.query("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[Some(schema)])?;
    Ok(!found.is_empty())
}

/// The longest name that Postgres keeps whole.
pub(crate) const MAX_NAME_BYTES: usize = 63;

/// Refuses a name that Postgres would cut off, or cannot hold.
///
/// # Errors
/// `config`, naming it.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::config(format!(
            "the {what} {} is {} bytes long; Postgres keeps no more than {MAX_NAME_BYTES} of a name, so rename it at \
             the source (a view will do)",
            ident(name),
            name.len()
        )));
    }
    if name.is_empty() || name.contains('\0') {
        return Err(Error::config(format!(
            "the {what} {name:?} is not a name that Postgres can hold"
        )));
    }
    Ok(())
}
