//! Rows that were sent to a table and are not in it: rules divert them, and triggers that return NULL drop them, both
//! without an error. Here they get one.

use setu_sdk::{Error, Result, WriteMode};

use crate::catalog::Relation;
use crate::client::Client;
use crate::sql::Table;

/// Refuses a target whose rules would divert what an INSERT of this mode brings. A COPY does not fire rules.
///
/// # Errors
/// `config`, naming the rules.
pub(crate) fn refuse_rules(client: &mut Client, target: &Relation, mode: WriteMode) -> Result<()> {
    // ON CONFLICT does not work beside rules of any kind.
    let diverting = match mode {
        WriteMode::Upsert => "ev_type IN ('2', '3')",
        WriteMode::Append | WriteMode::Overwrite => "ev_type = '3' AND is_instead",
    };
    let sql = format!(
        "SELECT quote_ident(rulename) FROM pg_rewrite WHERE ev_class = $1::oid AND {diverting} \
           AND ev_enabled NOT IN ('D', 'R') ORDER BY 1"
    );
    let rules = names(client, &sql, &target.oid.to_string())?;
    if rules.is_empty() {
        return Ok(());
    }
    Err(Error::config(format!(
        "rows cannot be written to {} as they are, because of its rule {}; disable it (ALTER TABLE {} DISABLE RULE …) \
         or set `schema` to write elsewhere",
        target.table,
        rules.join(", "),
        target.table.sql(),
    )))
}

/// Refuses what did not arrive whole.
///
/// # Errors
/// `config`, naming the triggers that may have dropped rows. The transaction must be rolled back.
pub(crate) fn refuse_loss(client: &mut Client, target: &Table, sent: u64, arrived: u64) -> Result<()> {
    if sent == arrived {
        return Ok(());
    }
    let triggers = triggers(client, target, "true")?;
    let cause = if triggers.is_empty() {
        "a rule, a trigger or row security".to_owned()
    } else {
        format!("its trigger {}", triggers.join(", "))
    };
    Err(Error::config(format!(
        "of {sent} rows {arrived} arrived in {target} and the others were dropped there, by {cause}; nothing of this was \
         kept. Disable it for the load (ALTER TABLE … DISABLE TRIGGER …), leave such rows out at the source (a view \
         will do), or set `schema` to write elsewhere"
    )))
}

/// Whether Postgres' own trigger leaves rows as they are where an update would change nothing.
pub(crate) fn skips_unchanged(client: &mut Client, target: &Table) -> Result<bool> {
    let triggers = triggers(client, target, "f.proname = 'suppress_redundant_updates_trigger'")?;
    Ok(!triggers.is_empty())
}

/// The triggers that can make an INSERT or an UPDATE of a row undone, on the table and its partitions.
fn triggers(client: &mut Client, target: &Table, condition: &str) -> Result<Vec<String>> {
    // `tgtype` is 1 for each row, 2 before, 4 on INSERT, 16 on UPDATE (`pg_trigger.h`).
    let sql = format!(
        "SELECT DISTINCT quote_ident(tgname) FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid \
         WHERE tgrelid IN (SELECT $1::regclass::oid UNION SELECT relid FROM pg_partition_tree($1::regclass)) \
           AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 3 = 3 AND tgtype & 20 <> 0 AND {condition} ORDER BY 1"
    );
    names(client, &sql, &target.sql())
}

fn names(client: &mut Client, sql: &str, of: &str) -> Result<Vec<String>> {
    let rows = client.query(sql, &[Some(of)])?;
    rows.iter().map(|row| row.text(0).map(str::to_owned)).collect()
}
