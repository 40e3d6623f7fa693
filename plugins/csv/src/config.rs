//! The two configurations.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use setu_sdk::{DataType, Error, Result};

use crate::dialect::Dialect;

/// Where CSV files are read from, and what is in them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// A file, or a folder of files named `*.csv`, `*.tsv` or `*.txt`, each perhaps with `.gz`. Each file is a stream,
    /// named like the file without these endings. Folders within the folder and hidden files are not read.
    #[schemars(extend("x-setu-grant" = "read"))]
    pub path: String,

    /// What separates fields: one ASCII character, or `\t` for a tab. By default a comma, in `.tsv` files a tab.
    #[schemars(length(min = 1, max = 2))]
    pub delimiter: Option<String>,

    /// What encloses a field that holds a delimiter, a quote or a line break: one ASCII character. It stands twice for
    /// one of itself.
    #[serde(default = "default_quote")]
    #[schemars(length(equal = 1))]
    pub quote: String,

    /// Whether the first line holds the columns' names. Otherwise they are `column_1`, `column_2`, …
    ///
    /// A column without a name becomes `column_N`, and a name that stands twice gets `_2`, `_3`, … at its end.
    #[serde(default = "default_header")]
    pub header: bool,

    /// Fields that mean NULL when they are not quoted. By default the empty field; `""`, in quotes, is then the empty
    /// string.
    #[serde(default = "default_null")]
    pub null: Vec<String>,

    /// The types of columns that are not text, by name: `int64`, `decimal(12,2)`, `date`, `timestamp_tz`, … Where
    /// `path` is a folder, they hold for every file that has a column of that name.
    #[serde(default)]
    pub columns: BTreeMap<String, ColumnType>,

    /// Reads every file to its end before the first row, and gives columns without a declared type the type that fits
    /// all their values and loses nothing of their text: no leading zero, no plus sign, no trailing zero.
    #[serde(default)]
    pub infer: bool,

    /// The columns that identify a row, for upserts. They must hold no NULL. Where `path` is a folder, this holds for
    /// every file that has all of them.
    #[serde(default)]
    #[schemars(extend("uniqueItems" = true))]
    pub primary_key: Vec<String>,
}

/// Where CSV files are written to, and how.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DestinationConfig {
    /// A folder; a stream becomes the file `namespace.name.csv` in it. Characters other than letters, digits, spaces,
    /// `_` and `-` stand as `%` and two hexadecimal digits in the file's name.
    #[schemars(extend("x-setu-grant" = "write"))]
    pub path: String,

    /// What separates fields: one ASCII character, or `\t` for a tab. By default a comma.
    #[schemars(length(min = 1, max = 2))]
    pub delimiter: Option<String>,

    /// What encloses a field that needs it: one ASCII character.
    #[serde(default = "default_quote")]
    #[schemars(length(equal = 1))]
    pub quote: String,

    /// Whether the first line holds the columns' names.
    #[serde(default = "default_header")]
    pub header: bool,

    /// The first of these is written for NULL, without quotes. A value that equals one of them is quoted.
    #[serde(default = "default_null")]
    #[schemars(length(min = 1))]
    pub null: Vec<String>,
}

fn default_quote() -> String {
    "\"".into()
}

fn default_header() -> bool {
    true
}

fn default_null() -> Vec<String> {
    vec![String::new()]
}

/// A column's declared type: boolean, int16, int32, int64, float32, float64, decimal(p,s), numeric, text, bytes, uuid,
/// json, date, time, timestamp or timestamp_tz.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(extend("pattern" = r"^(boolean|int16|int32|int64|float32|float64|decimal\(([1-9]|[12][0-9]|3[0-8]), ?([0-9]|[12][0-9]|3[0-8])\)|numeric|text|bytes|uuid|json|date|time|timestamp|timestamp_tz)$"))]
pub struct ColumnType(#[schemars(with = "String")] pub DataType);

impl TryFrom<String> for ColumnType {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Ok(ColumnType(text.parse()?))
    }
}

impl SourceConfig {
    /// The dialect of a file, by its name.
    pub(crate) fn dialect(&self, file_name: &str) -> Result<Dialect> {
        let default = if is_tsv(file_name) { "\t" } else { "," };
        let delimiter = self.delimiter.as_deref().unwrap_or(default);
        Dialect::new(delimiter, &self.quote, self.header, &self.null)
    }
}

impl DestinationConfig {
    /// The dialect of every file.
    pub(crate) fn dialect(&self) -> Result<Dialect> {
        let delimiter = self.delimiter.as_deref().unwrap_or(",");
        let dialect = Dialect::new(delimiter, &self.quote, self.header, &self.null)?;
        if dialect.nulls().is_empty() {
            return Err(Error::config(
                "`null` is empty: name the text that stands for NULL, such as \"\"",
            ));
        }
        Ok(dialect)
    }
}

fn is_tsv(file_name: &str) -> bool {
    let name = file_name.to_ascii_lowercase();
    name.strip_suffix(".gz").unwrap_or(&name).ends_with(".tsv")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_carry_grants_defaults_and_descriptions() {
        let schema: serde_json::Value =
            serde_json::from_str(&setu_sdk::config_schema::<SourceConfig>()).unwrap();
        assert_eq!(schema["properties"]["path"]["x-setu-grant"], "read");
        assert_eq!(schema["properties"]["null"]["default"], serde_json::json!([""]));
        assert_eq!(schema["required"], serde_json::json!(["path"]));
        assert_eq!(schema["additionalProperties"], false);
        assert!(schema["properties"]["infer"]["description"].is_string());
        // Checked by the host, with the place in the pipeline file.
        assert!(schema["$defs"]["ColumnType"]["pattern"].is_string());
        let schema: serde_json::Value =
            serde_json::from_str(&setu_sdk::config_schema::<DestinationConfig>()).unwrap();
        assert_eq!(schema["properties"]["path"]["x-setu-grant"], "write");
    }

    #[test]
    fn a_tsv_file_has_tabs_unless_told_otherwise() {
        let config = |json: serde_json::Value| serde_json::from_value::<SourceConfig>(json).unwrap();
        let plain = config(serde_json::json!({"path": "x"}));
        assert_eq!(plain.dialect("a.TSV.gz").unwrap().delimiter, b'\t');
        assert_eq!(plain.dialect("a.csv").unwrap().delimiter, b',');
        let told = config(serde_json::json!({"path": "x", "delimiter": ";"}));
        assert_eq!(told.dialect("a.tsv").unwrap().delimiter, b';');
    }
}
