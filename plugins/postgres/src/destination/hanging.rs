//! What a target has that a new table in its place would not: asked before a shadow may take the target's name, so that
//! nothing that people gave to a table is lost.

use setu_sdk::{Result, Schema};

use crate::catalog::Relation;
use crate::client::Client;
use crate::sql::ident;

/// What a shadow with the target's columns and its primary key would lack, in words: what depends on the target, and
/// what it was given beyond its columns.
pub(crate) fn for_its_columns(
    client: &mut Client,
    relation: &Relation,
    schema: &Schema,
) -> Result<Vec<String>> {
    let mut hanging = ask(client, BEYOND_COLUMNS, relation)?;
    // The shadow takes rows without a value there.
    let filled_here = relation
        .columns
        .iter()
        .filter(|column| column.not_null && schema.index_of(&column.name).is_none());
    hanging.extend(filled_here.map(|column| {
        format!(
            "column {}, which is NOT NULL and not in the stream",
            ident(&column.name)
        )
    }));
    Ok(hanging)
}

/// What a shadow with the stream's columns would lack.
pub(crate) fn for_other_columns(
    client: &mut Client,
    relation: &Relation,
    schema: &Schema,
) -> Result<Vec<String>> {
    let mut hanging = ask(client, BEYOND_COLUMNS, relation)?;
    hanging.extend(ask(client, OF_COLUMNS, relation)?);
    let key = &relation.primary_key;
    let keeps_a_key =
        !schema.primary_key.is_empty() || key.iter().all(|name| schema.index_of(name).is_some());
    if !keeps_a_key {
        hanging.push(format!(
            "its primary key ({}), which the stream has no columns for",
            key.join(", ")
        ));
    }
    Ok(hanging)
}

fn ask(client: &mut Client, sql: &str, relation: &Relation) -> Result<Vec<String>> {
    let rows = client.query(sql, &[Some(&relation.oid.to_string())])?;
    Ok(rows
        .iter()
        .filter_map(|row| row.opt(0))
        .map(str::to_owned)
        .collect())
}

/// Columns of the catalogue that older servers lack are looked up in the row's JSON.
const BEYOND_COLUMNS: &str = "WITH t AS (SELECT * FROM pg_class WHERE oid = $1::oid), \
      attribute AS (SELECT a.* FROM t JOIN pg_attribute a ON a.attrelid = t.oid \
        WHERE a.attnum > 0 AND NOT a.attisdropped), \
      types AS (SELECT ty.oid FROM t JOIN pg_type ty ON ty.oid = t.reltype OR ty.typelem = t.reltype), \
      key AS (SELECT k.condeferrable, to_jsonb(k) ->> 'conperiod' AS period, i.*, c.reloptions, c.reltablespace \
        FROM t JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype = 'p' \
          JOIN pg_index i ON i.indexrelid = k.conindid JOIN pg_class c ON c.oid = i.indexrelid) \
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM t JOIN pg_depend d \
      ON d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid \
        OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (SELECT oid FROM types) \
      WHERE d.deptype IN ('n', 'a', 'x') AND NOT (d.classid = 'pg_constraint'::regclass AND EXISTS \
        (SELECT 1 FROM pg_constraint k WHERE k.oid = d.objid AND k.conrelid = t.oid AND k.contype IN ('p', 'n'))) \
    UNION SELECT 'its membership in ' || pg_describe_object(d.refclassid, d.refobjid, 0) FROM t JOIN pg_depend d \
      ON d.classid = 'pg_class'::regclass AND d.objid = t.oid AND d.deptype IN ('e', 'x') \
    UNION SELECT 'its grants' FROM t WHERE relacl IS NOT NULL \
    UNION SELECT 'the default privileges, which it does not have' FROM t JOIN pg_default_acl d \
      ON d.defaclobjtype = 'r' AND d.defaclnamespace IN (0, t.relnamespace) \
        AND pg_get_userbyid(d.defaclrole) = current_user WHERE t.relacl IS NULL \
    UNION SELECT 'the grants of column ' || quote_ident(attname) FROM attribute WHERE attacl IS NOT NULL \
    UNION SELECT 'the options of column ' || quote_ident(attname) FROM attribute a \
      WHERE attidentity <> '' OR attgenerated <> '' OR attoptions IS NOT NULL OR coalesce(attstattarget, -1) <> -1 \
        OR coalesce(to_jsonb(a) ->> 'attcompression', '') <> '' \
    UNION SELECT 'its comments' FROM t JOIN pg_description c \
      ON c.classoid = 'pg_class'::regclass AND (c.objoid = t.oid \
          OR c.objoid IN (SELECT indexrelid FROM pg_index WHERE indrelid = t.oid)) \
        OR c.classoid = 'pg_constraint'::regclass AND c.objoid IN (SELECT oid FROM pg_constraint WHERE conrelid = t.oid) \
        OR c.classoid = 'pg_type'::regclass AND c.objoid IN (SELECT oid FROM types) \
    UNION SELECT 'its security labels' FROM t JOIN pg_seclabel l ON l.classoid = 'pg_class'::regclass \
      AND l.objoid = t.oid \
    UNION SELECT 'its owner ' || quote_ident(pg_get_userbyid(relowner)) FROM t \
      WHERE pg_get_userbyid(relowner) <> current_user \
    UNION SELECT 'its row level security' FROM t WHERE relrowsecurity OR relforcerowsecurity \
    UNION SELECT 'its storage options' FROM t LEFT JOIN pg_class toast ON toast.oid = t.reltoastrelid \
      WHERE t.reloptions IS NOT NULL OR toast.reloptions IS NOT NULL OR t.reltablespace <> 0 \
        OR t.relpersistence <> 'p' OR t.reloftype <> 0 \
    UNION SELECT 'its access method' FROM t JOIN pg_am ON pg_am.oid = relam \
      WHERE amname <> current_setting('default_table_access_method') \
    UNION SELECT 'its replica identity' FROM t WHERE relreplident <> 'd' \
    UNION SELECT 'its subscription' FROM t JOIN pg_subscription_rel ON srrelid = t.oid \
    UNION SELECT 'its inheritance' FROM t JOIN pg_inherits i ON i.inhrelid = t.oid \
    UNION SELECT 'its partitioning' FROM t WHERE relkind = 'p' OR relispartition \
    UNION SELECT 'the options of its primary key' FROM key WHERE condeferrable OR period = 'true' \
      OR indnatts <> indnkeyatts OR indisclustered OR reloptions IS NOT NULL OR reltablespace <> 0 \
    ORDER BY 1";

const OF_COLUMNS: &str = "SELECT what || ' of column ' || quote_ident(a.attname) FROM pg_attribute a \
      JOIN pg_type ty ON ty.oid = a.atttypid, \
      LATERAL (VALUES ('the collation', a.attcollation <> ty.typcollation), \
        ('the storage', a.attstorage <> ty.typstorage)) own(what, is_own) \
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped AND is_own ORDER BY 1";
