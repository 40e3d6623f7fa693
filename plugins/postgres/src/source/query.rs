//! The SQL of a read: what is selected, in which window, after which position, in which order. Pure functions.

use setu_sdk::text as staged;
use setu_sdk::{CursorWindow, Error, Result};

use super::position::Position;
use crate::catalog::{CatalogColumn, Relation};
use crate::datetime;
use crate::sql::{ident, literal};
use crate::types::{Base, Travel};

/// The columns that are read, and how each travels.
pub(crate) fn select_list<'a>(columns: impl IntoIterator<Item = (&'a CatalogColumn, Travel)>) -> String {
    let expressions = columns.into_iter().map(|(column, travel)| match travel {
        Travel::Binary(_) => format!("t.{}", ident(&column.name)),
        Travel::Text => format!("t.{}::pg_catalog.text", ident(&column.name)),
    });
    expressions.collect::<Vec<String>>().join(", ")
}

/// The conditions of a read, without the window's upper bound.
pub(crate) struct Conditions {
    window: Option<WindowSql>,
    position: Option<String>,
    order: String,
}

struct WindowSql {
    /// The cursor column.
    column: String,
    /// Its type, for literals.
    cast: String,
    base: Base,
    /// `column > since`, where there is a since.
    lower: Option<String>,
}

impl Conditions {
    /// Of a read by this key (empty: in no order), in this window, after this position.
    pub(crate) fn new(
        relation: &Relation,
        key: &[String],
        window: Option<&CursorWindow>,
        position: Option<&Position>,
    ) -> Result<Self> {
        let columns: Vec<String> = key.iter().map(|name| format!("t.{}", ident(name))).collect();
        let position = match position {
            Some(position) => Some(after(relation, &columns, position)?),
            None => None,
        };
        let order = if columns.is_empty() {
            String::new()
        } else {
            format!(" ORDER BY {}", columns.join(", "))
        };
        let window = window
            .map(|window| WindowSql::new(relation, window))
            .transpose()?;
        Ok(Conditions {
            window,
            position,
            order,
        })
    }

    /// The statement that gives the window's upper bound, as text; none without a window.
    pub(crate) fn upper_bound_sql(&self, relation: &Relation) -> Option<String> {
        let window = self.window.as_ref()?;
        let filter = window
            .lower
            .as_ref()
            .map(|lower| format!(" WHERE {lower}"))
            .unwrap_or_default();
        Some(format!(
            "SELECT max({})::pg_catalog.text FROM {} t{filter}",
            window.column,
            relation.table_expression()
        ))
    }

    /// The upper bound in the staged form, from the text that the server gave.
    pub(crate) fn stage_upper_bound(&self, text: &str) -> Result<String> {
        let base = self.window.as_ref().map(|window| window.base);
        restage(base, &datetime::from_printed(text)).ok_or_else(|| {
            Error::data(format!(
                "the largest value of the cursor, {text}, is out of range"
            ))
        })
    }

    /// The rows of the window up to `until` (staged form; none: no row has a cursor value), after the position.
    pub(crate) fn filter(&self, until: Option<&str>) -> Result<String> {
        let mut conditions = Vec::new();
        if let Some(window) = &self.window {
            conditions.push(window.filter(until)?);
        }
        conditions.extend(self.position.clone());
        Ok(where_clause(&conditions))
    }

    /// The rows of the window as far as it reaches now, for counting.
    pub(crate) fn open_filter(&self) -> String {
        let lower = self.window.as_ref().and_then(|window| window.lower.clone());
        where_clause(
            &lower
                .into_iter()
                .chain(self.position.clone())
                .collect::<Vec<String>>(),
        )
    }

    /// ` ORDER BY …`, or nothing.
    pub(crate) fn order(&self) -> &str {
        &self.order
    }
}

fn where_clause(conditions: &[String]) -> String {
    if conditions.is_empty() {
        String::new()
    } else {
        format!(" WHERE {}", conditions.join(" AND "))
    }
}

impl WindowSql {
    fn new(relation: &Relation, window: &CursorWindow) -> Result<Self> {
        let column = relation.column(&window.field).ok_or_else(|| {
            Error::not_found(format!(
                "{} has no column `{}` to serve as a cursor",
                relation.table, window.field
            ))
        })?;
        let base = Base::from_oid(column.catalog_type.base_oid).filter(|base| base.is_cursor()).ok_or_else(|| {
            Error::config(format!(
                "column `{}` of {} has the type {}, which cannot serve as a cursor; numbers, dates, timestamps and \
                 text can",
                window.field, relation.table, column.catalog_type.name
            ))
        })?;
        let mut sql = WindowSql {
            column: format!("t.{}", ident(&column.name)),
            cast: base.sql(),
            base,
            lower: None,
        };
        if let Some(since) = &window.since {
            let comparison = if window.since_inclusive { ">=" } else { ">" };
            sql.lower = Some(format!("{} {comparison} {}", sql.column, sql.literal(since)?));
        }
        Ok(sql)
    }

    fn filter(&self, until: Option<&str>) -> Result<String> {
        let upper = until.map(|until| self.literal(until)).transpose()?;
        let upper = upper.map(|until| format!("{} <= {until}", self.column));
        Ok(match (&self.lower, upper) {
            (Some(lower), Some(upper)) => format!("{lower} AND {upper}"),
            // Nothing new: no row at all.
            (Some(_), None) => "false".to_owned(),
            (None, Some(upper)) => format!("({upper} OR {} IS NULL)", self.column),
            (None, None) => format!("{} IS NULL", self.column),
        })
    }

    /// A value in its staged form as a literal of the cursor's type.
    fn literal(&self, staged: &str) -> Result<String> {
        let text = restage(Some(self.base), staged).ok_or_else(|| {
            Error::config(format!(
                "the cursor's last value `{staged}` is not a {} in the staged form",
                self.cast
            ))
        })?;
        let text = if is_temporal(self.base) {
            datetime::literal(&text)
        } else {
            text
        };
        Ok(format!("{}::{}", literal(&text), self.cast))
    }
}

fn is_temporal(base: Base) -> bool {
    matches!(base, Base::Date | Base::Timestamp | Base::Timestamptz)
}

/// A cursor's text in the exact staged form; none where it is no value of the type.
fn restage(base: Option<Base>, text: &str) -> Option<String> {
    let mut out = Vec::new();
    match base {
        Some(Base::Date) => staged::write_date(&mut out, staged::parse_date(text.as_bytes()).ok()?),
        Some(Base::Timestamp) => {
            staged::write_timestamp(&mut out, staged::parse_timestamp(text.as_bytes()).ok()?);
        }
        Some(Base::Timestamptz) => {
            staged::write_timestamp_tz(&mut out, staged::parse_timestamp_tz(text.as_bytes()).ok()?);
        }
        _ => return Some(text.to_owned()),
    }
    String::from_utf8(out).ok()
}

/// `(key) > (position)`, by the same comparison that the key's index and ORDER BY use.
fn after(relation: &Relation, columns: &[String], position: &Position) -> Result<String> {
    let mut values = Vec::new();
    for (name, value) in position.key.iter().zip(&position.after) {
        let column = relation.column(name).ok_or_else(|| {
            Error::conflict(format!("the key column `{name}` is gone from {}", relation.table))
        })?;
        values.push(format!("{}::{}", literal(value), key_cast(column)));
    }
    Ok(format!("({}) > ({})", columns.join(", "), values.join(", ")))
}

/// The type that a key's literal is given. That of a string type is `text`, whose comparison all but two share.
fn key_cast(column: &CatalogColumn) -> String {
    match Base::from_oid(column.catalog_type.base_oid) {
        Some(Base::Varchar) => Base::Text.sql(),
        Some(base) => base.sql(),
        None => column.cast.clone(),
    }
}

/// Whether a read can resume by this column.
pub(crate) fn is_key(column: &CatalogColumn) -> bool {
    column.is_enum || Base::from_oid(column.catalog_type.base_oid).is_some_and(Base::is_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Kind;
    use crate::sql::Table;
    use crate::types::CatalogType;

    fn column(name: &str, base_oid: u32) -> CatalogColumn {
        CatalogColumn {
            name: name.into(),
            catalog_type: CatalogType {
                base_oid,
                typmod: -1,
                is_domain: false,
                name: "t".into(),
            },
            cast: "s.mood".into(),
            is_enum: base_oid > 10_000,
            not_null: true,
            has_default: false,
            is_generated: false,
        }
    }

    fn relation() -> Relation {
        Relation {
            oid: 1,
            table: Table::new("s", "T t"),
            kind: Kind::Table,
            estimated_rows: None,
            columns: vec![
                column("id", 20),
                column("a\"b", 1043),
                column("at", 1184),
                column("mood", 16_384),
            ],
            primary_key: vec!["id".into()],
        }
    }

    fn window(since: Option<&str>, since_inclusive: bool) -> CursorWindow {
        CursorWindow {
            field: "at".into(),
            since: since.map(str::to_owned),
            since_inclusive,
        }
    }

    #[test]
    fn a_window_takes_exactly_the_rows_between_its_bounds() {
        let noon = "2024-01-01T12:00:00.000000Z";
        let sql_noon = "'2024-01-01 12:00:00.000000+00'::pg_catalog.timestamptz";
        let cases = [
            (None, false, None, "t.\"at\" IS NULL".to_owned()),
            (
                None,
                false,
                Some(noon),
                format!("(t.\"at\" <= {sql_noon} OR t.\"at\" IS NULL)"),
            ),
            (Some(noon), false, None, "false".to_owned()),
            (
                Some(noon),
                true,
                Some("infinity"),
                format!("t.\"at\" >= {sql_noon} AND t.\"at\" <= 'infinity'::pg_catalog.timestamptz"),
            ),
            (
                Some(noon),
                false,
                Some(noon),
                format!("t.\"at\" > {sql_noon} AND t.\"at\" <= {sql_noon}"),
            ),
        ];
        for (since, inclusive, until, expected) in cases {
            let conditions =
                Conditions::new(&relation(), &[], Some(&window(since, inclusive)), None).unwrap();
            assert_eq!(conditions.filter(until).unwrap(), format!(" WHERE {expected}"));
        }
        assert!(Conditions::new(&relation(), &[], Some(&window(Some("noon"), false)), None).is_err());
    }

    #[test]
    fn a_position_compares_by_the_keys_own_types() {
        let key: Vec<String> = ["id", "a\"b", "mood"].map(str::to_owned).to_vec();
        let position = Position {
            table: String::new(),
            key: key.clone(),
            after: vec!["7".into(), "it's".into(), "ok".into()],
            window: None,
        };
        let conditions = Conditions::new(&relation(), &key, None, Some(&position)).unwrap();
        assert_eq!(
            conditions.filter(None).unwrap(),
            " WHERE (t.\"id\", t.\"a\"\"b\", t.\"mood\") > ('7'::pg_catalog.int8, 'it''s'::pg_catalog.text, 'ok'::s.mood)"
        );
        assert_eq!(conditions.order(), " ORDER BY t.\"id\", t.\"a\"\"b\", t.\"mood\"");
    }
}
