//! What is known of a file before its rows are read: names, types, key.

use std::collections::HashSet;
use std::io::Read;

use setu_sdk::{DataType, Error, Field as SchemaField, Result, Schema, log};

use crate::config::SourceConfig;
use crate::dialect::Dialect;
use crate::files::CsvFile;
use crate::infer;
use crate::input::Input;
use crate::records::{Record, Records, error_at};

/// A file's dialect and schema.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) dialect: Dialect,
    pub(crate) schema: Schema,
    /// From the first rows; none for compressed files, whose length says little.
    pub(crate) estimated_rows: Option<u64>,
}

/// The contract's limits, which a file must not exceed at the cost of all others.
const MAX_COLUMNS: usize = 10_000;
const MAX_NAME_BYTES: usize = 1_024;

/// Reads a file's header, and all of it where types are to be inferred.
///
/// # Errors
/// `data` for a file without a record, and for one with more columns or longer names than a stream may have; `config`
/// where it is the only file and misses a column of the configuration.
pub(crate) fn describe(file: &CsvFile, config: &SourceConfig, is_only_file: bool) -> Result<Described> {
    let name = file.display();
    let dialect = config.dialect(&name)?;
    let (input, identity) = Input::open(file)?;
    let mut records = Records::new(input, &name, &dialect, 0, 1)?;
    let Some(first) = first_record(&mut records, &dialect)? else {
        return Err(Error::data(format!("{name} is empty: it has no columns")));
    };
    let wrong = |what: &str| error_at(&name, first.line, first.offset, what);
    if first.values.len() > MAX_COLUMNS {
        let columns = first.values.len();
        return Err(wrong(&format!(
            "this file has {columns} columns; at most {MAX_COLUMNS} are possible"
        )));
    }
    let names = if dialect.header {
        header_names(&first.values, &name)
    } else {
        (1..=first.values.len()).map(|n| format!("column_{n}")).collect()
    };
    if let Some(at) = names.iter().position(|name| name.len() > MAX_NAME_BYTES) {
        let (column, bytes) = (at + 1, names[at].len());
        return Err(wrong(&format!(
            "column {column} has a name of {bytes} bytes; at most {MAX_NAME_BYTES} are possible"
        )));
    }

    let inferred = if config.infer {
        infer_types(file, identity.length(), &dialect, &names)?
    } else {
        vec![DataType::Text; names.len()]
    };
    let schema = assemble(&names, &inferred, config, is_only_file.then_some(&*name))?;
    let estimated_rows = match file.gzip {
        true => None,
        false => estimate_rows(&mut records, identity.length())?,
    };
    Ok(Described {
        dialect,
        schema,
        estimated_rows,
    })
}

/// What is said of a file that cannot be described: the columns that the configuration declares, so that the stream can
/// be chosen like the others, and reading it then tells what is wrong.
pub(crate) fn declared(config: &SourceConfig) -> Schema {
    let undeclared = |name: &&String| !config.columns.contains_key(*name);
    let key = config.primary_key.iter().filter(undeclared);
    let names: Vec<String> = config.columns.keys().chain(key).cloned().collect();
    let types = vec![DataType::Text; names.len()];
    put_together(&names, &types, config)
}

/// The record that tells how many columns a file has.
struct FirstRecord {
    values: Vec<String>,
    line: u64,
    offset: u64,
}

/// The first record that is not an empty line. A file of nothing but empty lines has one column of NULLs, unless the
/// column's name is what should stand there.
fn first_record<R: Read>(records: &mut Records<R>, dialect: &Dialect) -> Result<Option<FirstRecord>> {
    let mut blank = None;
    while let Some(record) = records.next()? {
        let first = FirstRecord {
            values: record.values(dialect.quote),
            line: record.line,
            offset: record.offset,
        };
        if !record.is_blank() {
            return Ok(Some(first));
        }
        blank = blank.or((!dialect.header).then_some(first));
    }
    Ok(blank)
}

/// Skips the header, if there is one, of a file that was found to have these columns.
///
/// # Errors
/// `conflict` where it has others by now: its values would be taken for those of the wrong columns.
pub(crate) fn skip_header<'a, R: Read>(
    records: &mut Records<R>,
    dialect: &Dialect,
    columns: impl IntoIterator<Item = &'a String>,
    file: &str,
) -> Result<()> {
    if !dialect.header {
        return Ok(());
    }
    let first = first_record(records, dialect)?;
    let found = first.map_or_else(Vec::new, |first| make_unique(&first.values));
    if found.iter().eq(columns) {
        return Ok(());
    }
    let message =
        format!("{file} was replaced by a file with other columns while it was looked at; try again");
    Err(Error::conflict(message).retryable())
}

/// Whether a record is a row: an empty line is none, unless the file has one column, where it is a NULL.
///
/// # Errors
/// `data` for a record with another number of fields than the file has columns.
#[inline]
pub(crate) fn is_row(record: &Record<'_>, columns: usize, file: &str) -> Result<bool> {
    if record.fields.len() == columns {
        return Ok(true);
    }
    if record.is_blank() {
        return Ok(false);
    }
    let (found, columns) = (counted(record.fields.len(), "field"), counted(columns, "column"));
    let what = format!("this record has {found}, but the file has {columns}");
    Err(error_at(file, record.line, record.offset, &what))
}

/// `1 field`, `2 fields`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn header_names(names: &[String], file: &str) -> Vec<String> {
    let unique = make_unique(names);
    for (was, is) in names.iter().zip(&unique).filter(|(was, is)| was != is) {
        log::warn!(
            "{file}: a column is called {is:?}, because the header's {was:?} is empty or stands twice"
        );
    }
    unique
}

/// Gives every column a name of its own: `column_N` where there is none, `_2`, `_3`, … behind one that stands twice.
fn make_unique(names: &[String]) -> Vec<String> {
    let given: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut taken = HashSet::new();
    let mut unique = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let base = if name.is_empty() {
            format!("column_{}", at + 1)
        } else {
            name.clone()
        };
        let is_free = |candidate: &str| !taken.contains(candidate);
        let mut candidate = base.clone();
        // A made-up name must not be that of another column either.
        if !is_free(&candidate) || name.is_empty() && given.contains(&*candidate) {
            let numbered = (2_u64..).map(|n| format!("{base}_{n}"));
            let mut free = numbered.filter(|name| is_free(name) && !given.contains(&**name));
            candidate = free.next().unwrap_or(base);
        }
        taken.insert(candidate.clone());
        unique.push(candidate);
    }
    unique
}

/// Puts names, types and key together. `only_file` names the file whose columns a configuration must not miss.
fn assemble(
    names: &[String],
    types: &[DataType],
    config: &SourceConfig,
    only_file: Option<&str>,
) -> Result<Schema> {
    let missing = |what: &str, column: &str, file: &str| {
        Error::config(format!(
            "`{what}` names `{column}`, which {file} does not have; its columns are {}",
            names.join(", ")
        ))
    };
    if let Some(file) = only_file {
        let has = |column: &String| names.contains(column);
        if let Some(column) = config.columns.keys().find(|column| !has(column)) {
            return Err(missing("columns", column, file));
        }
        if let Some(column) = config.primary_key.iter().find(|column| !has(column)) {
            return Err(missing("primary_key", column, file));
        }
    }
    Ok(put_together(names, types, config))
}

fn put_together(names: &[String], types: &[DataType], config: &SourceConfig) -> Schema {
    let has = |column: &String| names.contains(column);
    let has_key = !config.primary_key.is_empty() && config.primary_key.iter().all(has);
    let field = |(name, inferred): (&String, &DataType)| {
        let data_type = config.columns.get(name).map_or(*inferred, |declared| declared.0);
        let field = SchemaField::new(name, data_type);
        if has_key && config.primary_key.contains(name) {
            field.not_null()
        } else {
            field
        }
    };
    let schema = Schema::new(names.iter().zip(types).map(field));
    if has_key {
        schema.with_primary_key(&config.primary_key)
    } else {
        schema
    }
}

/// Reads the whole file.
fn infer_types(file: &CsvFile, length: u64, dialect: &Dialect, columns: &[String]) -> Result<Vec<DataType>> {
    let name = file.display();
    // What was appended since is not read either.
    let (input, _) = Input::open_up_to(file, length)?;
    let mut records = Records::new(input, &name, dialect, 0, 1)?;
    skip_header(&mut records, dialect, columns, &name)?;
    let mut found = vec![infer::Column::default(); columns.len()];
    let mut value = Vec::new();
    while let Some(record) = records.next()? {
        if !is_row(&record, columns.len(), &name)? {
            continue;
        }
        for (column, field) in found.iter_mut().zip(record.fields) {
            let mut text = record.raw(*field);
            if !field.quoted && dialect.is_null_text(text) {
                continue;
            }
            if field.doubled {
                value.clear();
                record.append_value(*field, dialect.quote, &mut value);
                text = &value;
            }
            column.see(text);
        }
    }
    Ok(found.iter().map(infer::Column::data_type).collect())
}

/// From the length of the next rows; none where they cannot be read, which reading itself will report.
fn estimate_rows(records: &mut Records<Input>, length: u64) -> Result<Option<u64>> {
    const SAMPLE: u64 = 100;
    let start = records.offset();
    let mut rows = 0;
    while rows < SAMPLE {
        match records.next() {
            Ok(Some(_)) => rows += 1,
            Ok(None) => return Ok(Some(rows)),
            Err(_) => return Ok(None),
        }
    }
    let sampled = (records.offset() - start).max(1);
    Ok(Some(length.saturating_sub(start) * SAMPLE / sampled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_gets_a_name_of_its_own() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["a", "b"], &["a", "b"]),
            (&["a", "", "a", "a"], &["a", "column_2", "a_2", "a_3"]),
            (&["a", "a", "a_2"], &["a", "a_3", "a_2"]),
            (&["column_2", ""], &["column_2", "column_2_2"]),
            (&["", "column_1"], &["column_1_2", "column_1"]),
            (&["a", "A"], &["a", "A"]),
        ];
        for (names, expected) in cases {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(make_unique(&names), *expected, "{names:?}");
        }
    }
}
