//! How each column of a stream gets into its column of the target: straight in its binary form, or over a staging table
//! and a cast. Pure functions; what would change a value silently is refused.

use setu_sdk::{DataType, Field};

use crate::catalog::{CatalogColumn, Relation};
use crate::encode::{self, Encoder};
use crate::types::Base;

/// One column's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColumnPlan {
    pub(crate) name: String,
    pub(crate) encoder: Encoder,
    /// The type of the column in a staging table.
    pub(crate) stage_type: String,
    /// What the staged value is cast to before it is assigned; none: nothing.
    pub(crate) cast: Option<String>,
    /// What casting or assigning could do to the value without an error.
    pub(crate) danger: Option<Danger>,
}

/// What must be ruled out before a value is taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Danger {
    /// Assigning to this type rounds.
    Rounded(String),
    /// The cast keeps the first byte only.
    CutOff,
}

/// All columns' ways, in the order of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) columns: Vec<ColumnPlan>,
}

impl Plan {
    /// The plan, or what stands in its way: one phrase for each column.
    pub(crate) fn new(fields: &[Field], target: &Relation) -> Result<Plan, Vec<String>> {
        let (mut columns, mut problems) = (Vec::new(), Vec::new());
        for field in fields {
            match target.column(&field.name) {
                Some(column) => match plan_column(field, column) {
                    Ok(plan) => columns.push(plan),
                    Err(problem) => problems.push(problem),
                },
                None => problems.push(format!("column `{}` is missing", field.name)),
            }
        }
        let given = |column: &&CatalogColumn| fields.iter().any(|field| field.name == column.name);
        let unfilled = target
            .columns
            .iter()
            .filter(|column| column.not_null && !column.has_default && !given(column));
        problems.extend(unfilled.map(|column| {
            format!(
                "column `{}` is NOT NULL, has no default and is not in the stream",
                column.name
            )
        }));
        if problems.is_empty() {
            Ok(Plan { columns })
        } else {
            Err(problems)
        }
    }

    /// Whether rows can be copied straight into the target.
    pub(crate) fn is_direct(&self) -> bool {
        self.columns.iter().all(|column| column.cast.is_none())
    }
}

fn plan_column(field: &Field, target: &CatalogColumn) -> Result<ColumnPlan, String> {
    let own = &target.catalog_type;
    if target.is_generated {
        return Err(format!(
            "column `{}` is generated and cannot be written",
            field.name
        ));
    }
    let base = Base::from_oid(own.base_oid);
    if let Some(base) = base
        && let Some(encoder) = encode::direct(field.data_type, base, own.typmod)
    {
        return Ok(ColumnPlan {
            name: field.name.clone(),
            encoder,
            stage_type: base.sql(),
            cast: None,
            danger: None,
        });
    }
    if can_be_cast(field.data_type, base) {
        let (stage, encoder) = encode::natural(field.data_type);
        return Ok(ColumnPlan {
            name: field.name.clone(),
            encoder,
            stage_type: stage.sql(),
            cast: Some(target.cast.clone()),
            danger: match own.base_oid {
                CHAR_TYPE => Some(Danger::CutOff),
                oid if own.typmod != -1 && ROUNDED_TYPES.contains(&oid) => {
                    Some(Danger::Rounded(own.name.clone()))
                }
                _ => None,
            },
        });
    }
    Err(format!(
        "column `{}` is {} in the target and {} in the stream, which does not fit without loss",
        field.name, own.name, field.data_type
    ))
}

/// Types whose precision rounds on assignment (`pg_type.dat`): time, timestamp, timestamptz, interval, timetz, numeric.
const ROUNDED_TYPES: [u32; 6] = [1083, 1114, 1184, 1186, 1266, 1700];

/// `"char"`, the type of one byte.
const CHAR_TYPE: u32 = 18;

/// Whether the server's own cast keeps every value, or fails.
fn can_be_cast(data_type: DataType, base: Option<Base>) -> bool {
    let is_string = matches!(base, Some(Base::Text | Base::Varchar | Base::Bpchar | Base::Name));
    match data_type {
        // By the type's input function, as a literal is read.
        DataType::Text => true,
        _ if is_string => base != Some(Base::Name),
        DataType::Int16 => matches!(base, Some(Base::Float4 | Base::Float8)),
        DataType::Int32 => base == Some(Base::Float8),
        DataType::Decimal(decimal) if decimal.scale == 0 => {
            matches!(base, Some(Base::Int2 | Base::Int4 | Base::Int8))
        }
        DataType::Date => base == Some(Base::Timestamp),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Kind;
    use crate::sql::Table;
    use crate::types::CatalogType;

    fn column(name: &str, base_oid: u32, cast: &str) -> CatalogColumn {
        CatalogColumn {
            name: name.into(),
            catalog_type: CatalogType {
                base_oid,
                typmod: -1,
                is_domain: false,
                name: cast.into(),
            },
            cast: cast.into(),
            is_enum: false,
            not_null: false,
            has_default: false,
            is_generated: false,
        }
    }

    fn relation(columns: Vec<CatalogColumn>) -> Relation {
        Relation {
            oid: 1,
            table: Table::new("s", "t"),
            kind: Kind::Table,
            estimated_rows: None,
            columns,
            primary_key: Vec::new(),
        }
    }

    #[test]
    fn a_column_goes_straight_in_or_is_cast_or_is_refused() {
        let way = |data_type, base_oid, cast: &str| {
            let plan = Plan::new(
                &[Field::new("a", data_type)],
                &relation(vec![column("a", base_oid, cast)]),
            );
            plan.map(|plan| (plan.is_direct(), plan.columns[0].stage_type.clone()))
        };
        assert_eq!(
            way(DataType::Int32, 20, "bigint"),
            Ok((true, "pg_catalog.int8".into()))
        );
        assert_eq!(
            way(DataType::Text, 1007, "integer[]"),
            Ok((false, "pg_catalog.text".into()))
        );
        assert_eq!(
            way(DataType::Text, 23, "integer"),
            Ok((false, "pg_catalog.text".into()))
        );
        assert_eq!(
            way(DataType::Uuid, 25, "text"),
            Ok((false, "pg_catalog.uuid".into()))
        );
        assert_eq!(
            way(DataType::decimal(5, 0), 23, "integer"),
            Ok((false, "pg_catalog.numeric".into()))
        );
        let refusals = [
            (DataType::Float64, 700),
            (DataType::Int64, 701),
            (DataType::Boolean, 23),
            (DataType::decimal(5, 1), 23),
        ];
        for (data_type, oid) in refusals {
            assert!(
                way(data_type, oid, "t").unwrap_err()[0].contains("without loss"),
                "{data_type} {oid}"
            );
        }
    }

    #[test]
    fn everything_that_stands_in_the_way_is_told_at_once() {
        let mut required = column("b", 23, "integer");
        required.not_null = true;
        let mut generated = column("c", 23, "integer");
        generated.is_generated = true;
        let fields = ["a", "c"].map(|name| Field::new(name, DataType::Int32));
        let problems = Plan::new(&fields, &relation(vec![required, generated])).unwrap_err();
        assert_eq!(problems.len(), 3);
        for (problem, part) in problems
            .iter()
            .zip(["`a` is missing", "`c` is generated", "`b` is NOT NULL"])
        {
            assert!(problem.contains(part), "{problem}");
        }
    }
}
