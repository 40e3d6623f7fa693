//! Rows, honest ones and ones that break a rule each.

use crate::bindings::exports::setu::connector::source::Chunk;
use crate::bindings::setu::connector::types::{
    Batch, Column, DataType, DecimalType, Error, Schema, Spans, StreamInfo, Values,
};
use crate::{field, name};

const DECIMAL: DataType = DataType::Decimal(DecimalType {
    precision: 6,
    scale: 2,
});

pub(crate) fn schema(behaviour: &str) -> Schema {
    let mut fields = vec![
        field("id", DataType::Int64, false),
        field("name", DataType::Text, true),
        field("price", DECIMAL, true),
        field("at", DataType::Time, true),
        field("flag", DataType::Boolean, true),
        field("amount", DataType::Numeric, true),
    ];
    match behaviour {
        "two fields of one name" => fields.push(field("id", DataType::Int32, true)),
        "a name of a megabyte" => fields.push(field(&"x".repeat(1 << 20), DataType::Int32, true)),
        "20,000 columns" => {
            fields = (0..20_000)
                .map(|i| field(&i.to_string(), DataType::Int32, true))
                .collect()
        }
        "a decimal of 40 digits" => {
            let decimal = DecimalType {
                precision: 40,
                scale: 2,
            };
            fields.push(field("d", DataType::Decimal(decimal), true));
        }
        _ => {}
    }
    let key = if behaviour == "a key that is no field" {
        "nothing"
    } else {
        "id"
    };
    Schema {
        fields,
        primary_key: vec![key.to_owned()],
    }
}

pub(crate) fn streams(behaviour: &str) -> Vec<StreamInfo> {
    let stream = |own: &str| StreamInfo {
        name: name(own),
        kind: "table".into(),
        schema: schema(behaviour),
        estimated_rows: None,
        cursors: vec!["id".into()],
        resumable: behaviour != "a position from a stream that is not resumable",
    };
    match behaviour {
        "two streams of one name" => vec![stream("t"), stream("t")],
        "a stream without a name" => vec![stream("")],
        _ => vec![stream("t")],
    }
}

fn spans(values: impl Iterator<Item = String>) -> Spans {
    let mut spans = Spans {
        offsets: vec![0],
        data: vec![],
    };
    for value in values {
        spans.data.extend(value.as_bytes());
        spans.offsets.push(spans.data.len() as i32);
    }
    spans
}

/// The rows from `first` on, with every third name null.
fn honest(first: u64, rows: u32) -> Vec<Column> {
    let ids = || (first..first + u64::from(rows)).map(|id| id as i64);
    let mut validity = vec![0; rows.div_ceil(8) as usize];
    for (row, id) in ids().enumerate().filter(|(_, id)| id % 3 != 0) {
        validity[row / 8] |= u8::from(id >= 0) << (row % 8);
    }
    let column = |values| Column {
        validity: None,
        values,
    };
    vec![
        column(Values::Int64(ids().collect())),
        Column {
            validity: Some(validity),
            values: Values::Spans(spans(ids().map(|id| format!("näme {id}")))),
        },
        column(Values::Int128(
            ids().flat_map(|id| [id as u64 % 1000, 0]).collect(),
        )),
        column(Values::Int64(ids().map(|id| id % 86_400_000_001).collect())),
        column(Values::Bits(vec![0xaa; rows.div_ceil(8) as usize])),
        column(Values::Spans(spans(ids().map(|id| format!("-{id}.50"))))),
    ]
}

pub(crate) fn next(behaviour: &str, first: u64, rows: u32) -> Result<Chunk, Error> {
    let mut batch = Batch {
        rows,
        columns: honest(first, rows),
    };
    let mut position = Some((first + u64::from(rows)).to_le_bytes().to_vec());
    match behaviour {
        "panic" => panic!("row {first} is not to my taste"),
        "loop" => spin(),
        "error" => {
            return Err(Error {
                kind: crate::ErrorKind::Auth,
                message: "the password is wrong".into(),
                code: Some("28P01".into()),
                retryable: true,
            });
        }
        "a huge position" => position = Some(vec![0; 65_537]),
        "a huge list" => batch.columns[0].values = Values::Bits(vec![0; 400 << 20]),
        broken => break_batch(broken, &mut batch),
    }
    Ok(Chunk { batch, position })
}

fn spin() -> ! {
    let mut i = 0_u64;
    loop {
        i = std::hint::black_box(i.wrapping_add(1));
    }
}

fn break_batch(behaviour: &str, batch: &mut Batch) {
    let rows = batch.rows;
    let [id, name, price, at, flag, amount] = batch.columns.as_mut_slice() else {
        return;
    };
    let Values::Spans(name_spans) = &mut name.values else {
        return;
    };
    match behaviour {
        "no rows" => batch.rows = 0,
        "too many rows" => batch.rows = u32::MAX,
        "too few values" => id.values = Values::Int64(vec![1]),
        "a column of another type" => id.values = Values::Int32(vec![1; rows as usize]),
        "a null where none may be" => id.validity = Some(vec![0; rows.div_ceil(8) as usize]),
        "short validity" => name.validity = Some(vec![]),
        "decreasing offsets" => name_spans.offsets[2] = 0,
        "a negative offset" => name_spans.offsets[0] = -1,
        "an offset beyond the data" => *name_spans.offsets.last_mut().unwrap() += 1,
        "too few offsets" => name_spans.offsets.clear(),
        "text that is not UTF-8" => name_spans.data[1] = 0xff,
        // "näme": the second byte begins a character of two bytes.
        "an offset within a character" => name_spans.offsets[0] = 2,
        "a decimal of too many digits" => price.values = Values::Int128(vec![1_000_000; 2 * rows as usize]),
        "a time beyond the day" => at.values = Values::Int64(vec![86_400_000_001; rows as usize]),
        "short bits" => flag.values = Values::Bits(vec![]),
        "a numeric that is no number" => {
            amount.values = Values::Spans(spans((0..rows).map(|_| "twelve".to_owned())));
        }
        "a missing column" => {
            batch.columns.pop();
        }
        _ => {}
    }
}

/// Whether the rows are the honest ones from `first` on.
pub(crate) fn verify(batch: &Batch, first: u64) -> Result<(), String> {
    let expected = honest(first, batch.rows);
    for (index, (found, expected)) in batch.columns.iter().zip(&expected).enumerate() {
        let (found, expected) = (format!("{:?}", found.values), format!("{:?}", expected.values));
        if index != 4 && found != expected {
            return Err(format!(
                "column {index} from row {first}: {found:.200} instead of {expected:.200}"
            ));
        }
    }
    let bit = |bits: &Option<Vec<u8>>, row: usize| {
        bits.as_ref()
            .is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1)
    };
    for row in 0..batch.rows as usize {
        let present = !(first + row as u64).is_multiple_of(3);
        if bit(&batch.columns[1].validity, row) != present {
            return Err(format!(
                "the name of row {} is {}present",
                first + row as u64,
                if present { "not " } else { "" }
            ));
        }
    }
    Ok(())
}
