//! Which Postgres types travel in their binary form, and as what; all others travel as the text that Postgres itself
//! makes of them, with their name beside it.

use setu_sdk::DataType;

use crate::config::TextType;

/// The types that this crate reads and writes in binary. A domain counts as the type beneath it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    Bpchar,
    Name,
    Bytea,
    Uuid,
    Json,
    Jsonb,
    Date,
    Time,
    Timestamp,
    Timestamptz,
}

/// Object ids of the system's own types, which are the same in every server (`pg_type.dat`), and their names.
const BASES: [(Base, u32, &str); 19] = [
    (Base::Bool, 16, "bool"),
    (Base::Bytea, 17, "bytea"),
    (Base::Name, 19, "name"),
    (Base::Int8, 20, "int8"),
    (Base::Int2, 21, "int2"),
    (Base::Int4, 23, "int4"),
    (Base::Text, 25, "text"),
    (Base::Json, 114, "json"),
    (Base::Float4, 700, "float4"),
    (Base::Float8, 701, "float8"),
    (Base::Bpchar, 1042, "bpchar"),
    (Base::Varchar, 1043, "varchar"),
    (Base::Date, 1082, "date"),
    (Base::Time, 1083, "time"),
    (Base::Timestamp, 1114, "timestamp"),
    (Base::Timestamptz, 1184, "timestamptz"),
    (Base::Numeric, 1700, "numeric"),
    (Base::Uuid, 2950, "uuid"),
    (Base::Jsonb, 3802, "jsonb"),
];

impl Base {
    /// The type with this object id.
    pub(crate) fn from_oid(oid: u32) -> Option<Base> {
        BASES
            .iter()
            .find(|(_, id, _)| *id == oid)
            .map(|(base, _, _)| *base)
    }

    /// A name that means the type without a length or precision, whatever the search path.
    pub(crate) fn sql(self) -> String {
        let name = BASES
            .iter()
            .find(|(base, _, _)| *base == self)
            .map_or("text", |(_, _, name)| name);
        format!("pg_catalog.{name}")
    }

    /// Whether values compare in SQL just as their text literals do after a cast: what a position can be made of.
    pub(crate) fn is_key(self) -> bool {
        !matches!(
            self,
            Base::Float4 | Base::Float8 | Base::Json | Base::Jsonb | Base::Time
        )
    }

    /// Whether values grow as rows are added or changed, as far as a type can tell.
    pub(crate) fn is_cursor(self) -> bool {
        matches!(
            self,
            Base::Int2
                | Base::Int4
                | Base::Int8
                | Base::Numeric
                | Base::Text
                | Base::Varchar
                | Base::Date
                | Base::Timestamp
                | Base::Timestamptz
        )
    }
}

/// How a column of a source travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Travel {
    /// As its binary form.
    Binary(Base),
    /// As the text that `::text` makes of it.
    Text,
}

/// A column's type as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogType {
    /// With a domain followed down to what is beneath it.
    pub(crate) base_oid: u32,
    /// The type modifier of that; -1: none.
    pub(crate) typmod: i32,
    pub(crate) is_domain: bool,
    /// In the words of `format_type`.
    pub(crate) name: String,
}

impl CatalogType {
    /// The column's type in the contract's terms, its own name where that does not say all, and how it travels.
    pub(crate) fn logical(&self, as_text: &[TextType]) -> (DataType, Option<String>, Travel) {
        let base = Base::from_oid(self.base_oid).filter(|base| match base {
            Base::Timestamp => !as_text.contains(&TextType::Timestamp),
            Base::Timestamptz => !as_text.contains(&TextType::Timestamptz),
            _ => true,
        });
        let Some(base) = base else {
            return (DataType::Text, Some(self.name.clone()), Travel::Text);
        };
        let (data_type, says_all) = self.data_type(base, as_text.contains(&TextType::Numeric));
        let native = (self.is_domain || !says_all).then(|| self.name.clone());
        (data_type, native, Travel::Binary(base))
    }

    /// The contract's type, and whether it alone leads back to this one.
    fn data_type(&self, base: Base, numeric_as_text: bool) -> (DataType, bool) {
        let bare = self.typmod == -1;
        match base {
            Base::Bool => (DataType::Boolean, true),
            Base::Int2 => (DataType::Int16, true),
            Base::Int4 => (DataType::Int32, true),
            Base::Int8 => (DataType::Int64, true),
            Base::Float4 => (DataType::Float32, true),
            Base::Float8 => (DataType::Float64, true),
            Base::Numeric => match numeric_typmod(self.typmod) {
                None => (DataType::Numeric, true),
                Some((precision @ 1..=38, scale)) if !numeric_as_text && (0..=precision).contains(&scale) => {
                    (DataType::decimal(precision as u8, scale as u8), true)
                }
                Some(_) => (DataType::Numeric, false),
            },
            Base::Text => (DataType::Text, true),
            Base::Varchar | Base::Bpchar | Base::Name => (DataType::Text, false),
            Base::Bytea => (DataType::Bytes, true),
            Base::Uuid => (DataType::Uuid, true),
            Base::Json => (DataType::Json, true),
            Base::Jsonb => (DataType::Json, false),
            Base::Date => (DataType::Date, true),
            Base::Time => (DataType::Time, bare),
            Base::Timestamp => (DataType::Timestamp, bare),
            Base::Timestamptz => (DataType::TimestampTz, bare),
        }
    }
}

/// Precision and scale of a numeric's type modifier; none where it has none.
pub(crate) fn numeric_typmod(typmod: i32) -> Option<(i32, i32)> {
    let bits = typmod.checked_sub(4).filter(|_| typmod >= 4)?;
    // The scale is a signed number of 11 bits.
    let scale = ((bits & 0x7ff) ^ 0x400) - 0x400;
    Some((bits >> 16 & 0xffff, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(base_oid: u32, typmod: i32, is_domain: bool) -> CatalogType {
        CatalogType {
            base_oid,
            typmod,
            is_domain,
            name: "as spelled".into(),
        }
    }

    fn typmod(precision: i32, scale: i32) -> i32 {
        (precision << 16 | scale & 0x7ff) + 4
    }

    #[test]
    fn a_type_keeps_its_own_name_where_the_logical_type_does_not_lead_back_to_it() {
        let native = Some("as spelled".to_owned());
        let cases = [
            (
                catalog(23, -1, false),
                DataType::Int32,
                None,
                Travel::Binary(Base::Int4),
            ),
            (
                catalog(23, -1, true),
                DataType::Int32,
                native.clone(),
                Travel::Binary(Base::Int4),
            ),
            (
                catalog(1700, -1, false),
                DataType::Numeric,
                None,
                Travel::Binary(Base::Numeric),
            ),
            (
                catalog(1700, typmod(10, 2), false),
                DataType::decimal(10, 2),
                None,
                Travel::Binary(Base::Numeric),
            ),
            (
                catalog(1700, typmod(38, 38), false),
                DataType::decimal(38, 38),
                None,
                Travel::Binary(Base::Numeric),
            ),
            (
                catalog(1700, typmod(39, 2), false),
                DataType::Numeric,
                native.clone(),
                Travel::Binary(Base::Numeric),
            ),
            (
                catalog(1700, typmod(5, -2), false),
                DataType::Numeric,
                native.clone(),
                Travel::Binary(Base::Numeric),
            ),
            (
                catalog(1700, typmod(2, 5), false),
                DataType::Numeric,
                native.clone(),
                Travel::Binary(Base::Numeric),
            ),
            (
                catalog(1043, 14, false),
                DataType::Text,
                native.clone(),
                Travel::Binary(Base::Varchar),
            ),
            (
                catalog(1114, 3, false),
                DataType::Timestamp,
                native.clone(),
                Travel::Binary(Base::Timestamp),
            ),
            (
                catalog(1184, -1, false),
                DataType::TimestampTz,
                None,
                Travel::Binary(Base::Timestamptz),
            ),
            (
                catalog(1007, -1, false),
                DataType::Text,
                native.clone(),
                Travel::Text,
            ),
            (catalog(1186, -1, false), DataType::Text, native, Travel::Text),
        ];
        for (catalog, data_type, native, travel) in cases {
            assert_eq!(catalog.logical(&[]), (data_type, native, travel), "{catalog:?}");
        }
    }

    #[test]
    fn a_type_can_be_read_in_its_widest_form() {
        let (decimal, timestamp) = (catalog(1700, typmod(10, 2), false), catalog(1114, -1, false));
        let widest = [TextType::Numeric, TextType::Timestamp];
        assert_eq!(decimal.logical(&widest).0, DataType::Numeric);
        assert_eq!(decimal.logical(&widest).1.as_deref(), Some("as spelled"));
        assert_eq!(timestamp.logical(&widest).2, Travel::Text);
        assert_eq!(
            catalog(1184, -1, false).logical(&widest).2,
            Travel::Binary(Base::Timestamptz)
        );
    }
}
