//! What must hold of any bytes whatever that are read as CSV, for the fuzz target `csv` (`host/fuzz`) and for the tests,
//! which replay its seeds.

use std::io::{self, Read};

use setu_sdk::{BatchBuilder, DataType, Field, Result, Schema};

use crate::dialect::Dialect;
use crate::encode::Encoder;
use crate::records::Records;

/// A record by value: the fields, and whether each is quoted; the offset and the line.
type Owned = (Vec<(String, bool)>, u64, u64);

/// Reads a file whose dialect, steps and places stand in the first four bytes. What is read depends neither on how much
/// comes at a time nor on where reading goes on, and its values, written as CSV, read back equal.
pub(crate) fn records(data: &[u8]) {
    let Some((&[delimiter, quote, step, at], file)) = data.split_first_chunk() else {
        return;
    };
    let text = |byte| char::from(byte).to_string();
    let Ok(dialect) = Dialect::new(&text(delimiter), &text(quote), false, &[String::new()]) else {
        return;
    };
    let (records, end) = read(file, usize::MAX, &dialect, 0, 1);
    let trickled = read(file, 1 + usize::from(step), &dialect, 0, 1);
    assert_eq!(trickled, (records.clone(), end.clone()));
    assert!(records.is_sorted_by(|one, next| one.1 < next.1 && one.2 < next.2));

    if let Some(kept) = usize::from(at).checked_rem(records.len()) {
        let (_, offset, line) = records[kept];
        let rest = read(&file[offset as usize..], usize::MAX, &dialect, offset, line);
        assert_eq!(rest, (records[kept..].to_vec(), end.clone()));
    }
    if let Ok((offset, line)) = end {
        assert_eq!(offset, file.len() as u64);
        let rest = read(&[], usize::MAX, &dialect, offset, line);
        assert_eq!(rest, (Vec::new(), Ok((offset, line))));
    }

    let values: Vec<_> = records
        .iter()
        .flat_map(|(fields, ..)| fields.iter().map(|(value, _)| value.as_str()))
        .collect();
    written_values_read_back(&values, &dialect);
}

/// All records from a place of the file on, and the place at which they end, or the error.
fn read(
    bytes: &[u8],
    step: usize,
    dialect: &Dialect,
    offset: u64,
    line: u64,
) -> (Vec<Owned>, std::result::Result<(u64, u64), String>) {
    let mut all = Vec::new();
    let mut read_all = || -> Result<(u64, u64)> {
        let mut records = Records::new(Trickle(bytes, step), "f.csv", dialect, offset, line)?;
        while let Some(record) = records.next()? {
            let mut fields = Vec::new();
            for field in record.fields {
                std::str::from_utf8(record.raw(*field)).expect("fields are UTF-8");
                let mut value = Vec::new();
                record.append_value(*field, dialect.quote, &mut value);
                fields.push((String::from_utf8(value).expect("values are UTF-8"), field.quoted));
                let (line, byte) = record.place(*field);
                assert!(line >= record.line && byte >= record.offset);
            }
            assert!(!fields.is_empty());
            all.push((fields, record.offset, record.line));
        }
        Ok((records.offset(), records.line()))
    };
    let end = read_all().map_err(|error| error.to_string());
    (all, end)
}

/// Values as a column of text, each a record, before a NULL.
fn written_values_read_back(values: &[&str], dialect: &Dialect) {
    let schema = Schema::new([Field::new("c", DataType::Text)]);
    let mut builder = BatchBuilder::new(&schema);
    for value in values {
        builder.column(0).push_str(value);
    }
    builder.column(0).push_null();
    let mut written = Vec::new();
    Encoder::new(dialect.clone(), &schema).rows(&builder.finish(), &mut written);
    if written.iter().take(4).filter(|byte| **byte == 0).count() == 2 {
        // Taken for UTF-16: nothing tells a text of this kind from it.
        return;
    }
    let (records, end) = read(&written, usize::MAX, dialect, 0, 1);
    assert!(end.is_ok(), "{end:?}");
    assert_eq!(records.len(), values.len() + 1);
    for ((fields, ..), value) in records.iter().zip(values) {
        let [(read, quoted)] = &fields[..] else {
            panic!("{value:?} became {fields:?}");
        };
        assert_eq!(read, value);
        assert!(
            *quoted || !dialect.is_null_text(read.as_bytes()),
            "{value:?} became NULL"
        );
    }
    assert_eq!(records[values.len()].0, [(String::new(), false)]);
}

/// Gives a few bytes at a time, to meet every boundary.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let step = self.1.min(into.len());
        self.0.read(&mut into[..step])
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_seed_holds() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host/fuzz/seeds/csv");
        for entry in std::fs::read_dir(seeds).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            super::records(&std::fs::read(&path).unwrap());
        }
    }
}
