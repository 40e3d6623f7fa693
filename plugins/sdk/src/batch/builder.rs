//! Builds batches column by column or row by row.

use crate::types::{Batch, BatchLimit, Chunk, Column, DataType, Schema, Spans, Values};

/// Builds the batches of one schema, one after the other.
///
/// Push exactly one value into each column for each row, then take the batch:
///
/// ```
/// use setu_sdk::{BatchBuilder, BatchLimit, DataType, Field, Schema};
///
/// let schema = Schema::new([Field::new("id", DataType::Int64), Field::new("note", DataType::Text)]);
/// let mut builder = BatchBuilder::new(&schema);
/// let limit = BatchLimit { rows: 100, bytes: 1 << 20 };
/// for id in 0..3 {
///     builder.column(0).push_i64(id);
///     builder.column(1).push_null();
///     if builder.is_full(limit) {
///         break;
///     }
/// }
/// assert_eq!(builder.finish().rows, 3);
/// ```
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    columns: Vec<ColumnBuilder>,
    /// Bytes of the columns of fixed width, for each row, in bits.
    fixed_bits: usize,
    /// Which columns hold values of varying length.
    spans: Vec<usize>,
    /// Only for a schema without columns.
    bare_rows: usize,
}

impl BatchBuilder {
    /// An empty builder.
    pub fn new(schema: &Schema) -> Self {
        let columns: Vec<ColumnBuilder> = schema
            .fields
            .iter()
            .map(|field| ColumnBuilder::new(field.data_type))
            .collect();
        let spans = |(at, column): (usize, &ColumnBuilder)| {
            matches!(column.values, Buffer::Spans { .. }).then_some(at)
        };
        BatchBuilder {
            fixed_bits: columns
                .iter()
                .map(|column| column.values.bits_per_row() + 1)
                .sum(),
            spans: columns.iter().enumerate().filter_map(spans).collect(),
            columns,
            bare_rows: 0,
        }
    }

    /// The column at this position.
    ///
    /// # Panics
    /// Where the schema has no such column.
    #[inline]
    pub fn column(&mut self, at: usize) -> &mut ColumnBuilder {
        &mut self.columns[at]
    }

    /// All columns, to hold several at a time.
    pub fn columns(&mut self) -> &mut [ColumnBuilder] {
        &mut self.columns
    }

    /// Counts a row of a schema that has no columns; does nothing otherwise.
    pub fn push_bare_row(&mut self) {
        if self.columns.is_empty() {
            self.bare_rows += 1;
        }
    }

    /// How many rows are complete, if rows are built from the first column to the last.
    #[inline]
    pub fn rows(&self) -> usize {
        self.columns.last().map_or(self.bare_rows, ColumnBuilder::len)
    }

    /// Whether there is no complete row.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// How many bytes of column data there are, to within a row.
    #[inline]
    pub fn bytes(&self) -> usize {
        let data = |&at: &usize| self.columns[at].values.data_bytes();
        self.rows() * self.fixed_bits / 8 + self.spans.iter().map(data).sum::<usize>()
    }

    /// Whether the batch should be taken now. Cheap enough to ask after every row.
    #[inline]
    pub fn is_full(&self, limit: BatchLimit) -> bool {
        self.rows() >= limit.rows as usize || self.bytes() as u64 >= limit.bytes
    }

    /// Takes the rows as a batch. The builder is empty afterwards and expects about as much again.
    ///
    /// A batch must hold at least one row: return none instead of an empty one.
    ///
    /// # Panics
    /// Where the columns are of different lengths.
    pub fn finish(&mut self) -> Batch {
        let rows = self.rows();
        let even = self.columns.iter().position(|column| column.len() != rows);
        if let Some(at) = even {
            panic!(
                "columns are of different lengths: column {at} of length {}, the last of length {rows}",
                self.columns[at].len()
            );
        }
        self.bare_rows = 0;
        Batch {
            rows: u32::try_from(rows).expect("a batch holds fewer than 2^32 rows"),
            columns: self.columns.iter_mut().map(ColumnBuilder::finish).collect(),
        }
    }

    /// The rows as what a reader returns: `None` where there are none, which is a read's end.
    pub fn take_chunk(&mut self, position: Option<Vec<u8>>) -> Option<Chunk> {
        let batch = (!self.is_empty()).then(|| self.finish())?;
        Some(Chunk { batch, position })
    }
}

/// Builds one column. Each push must be the one for the column's type.
#[derive(Clone, Debug)]
pub struct ColumnBuilder {
    data_type: DataType,
    /// None as long as nothing is null.
    validity: Option<Bits>,
    len: usize,
    values: Buffer,
}

#[derive(Clone, Debug)]
enum Buffer {
    Bits(Bits),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    /// Low word first.
    Int128(Vec<u64>),
    Fixed16(Vec<u8>),
    Spans {
        offsets: Vec<i32>,
        data: Vec<u8>,
    },
}

/// One bit a row, least significant first.
#[derive(Clone, Debug, Default)]
struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    #[inline]
    fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if bit && let Some(last) = self.bytes.last_mut() {
            *last |= 1 << (self.len % 8);
        }
        self.len += 1;
    }

    /// Appends `n` ones.
    fn push_ones(&mut self, n: usize) {
        let mut left = n;
        while left > 0 && !self.len.is_multiple_of(8) {
            self.push(true);
            left -= 1;
        }
        self.bytes.resize(self.bytes.len() + left / 8, 0xff);
        self.len += left / 8 * 8;
        for _ in 0..left % 8 {
            self.push(true);
        }
    }

    fn take(&mut self) -> Vec<u8> {
        self.len = 0;
        let next = Vec::with_capacity(self.bytes.len());
        std::mem::replace(&mut self.bytes, next)
    }
}

/// The pushes of one fixed-width buffer: a value and a slice of values.
macro_rules! pushes {
    ($($push:ident, $extend:ident, $t:ty, $case:ident, $what:literal;)+) => {$(
        #[doc = concat!("Appends a value of type ", $what, ". Panics for a column of another type.")]
        #[inline]
        pub fn $push(&mut self, value: $t) {
            match &mut self.values {
                Buffer::$case(values) => values.push(value),
                _ => self.mismatch(stringify!($push)),
            }
            self.pushed_valid(1);
        }

        #[doc = concat!("Appends values of type ", $what, ". Panics for a column of another type.")]
        pub fn $extend(&mut self, more: &[$t]) {
            match &mut self.values {
                Buffer::$case(values) => values.extend_from_slice(more),
                _ => self.mismatch(stringify!($extend)),
            }
            self.pushed_valid(more.len());
        }
    )+};
}

impl ColumnBuilder {
    /// An empty column.
    pub fn new(data_type: DataType) -> Self {
        ColumnBuilder {
            data_type,
            validity: None,
            len: 0,
            values: Buffer::new(data_type),
        }
    }

    /// What the column holds.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// How many values, nulls included.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a null, for every type.
    pub fn push_null(&mut self) {
        let len = self.len;
        let validity = self.validity.get_or_insert_with(|| {
            let mut bits = Bits::default();
            bits.push_ones(len);
            bits
        });
        validity.push(false);
        self.len += 1;
        match &mut self.values {
            Buffer::Bits(bits) => bits.push(false),
            Buffer::Int16(values) => values.push(0),
            Buffer::Int32(values) => values.push(0),
            Buffer::Int64(values) => values.push(0),
            Buffer::Float32(values) => values.push(0.0),
            Buffer::Float64(values) => values.push(0.0),
            Buffer::Int128(words) => words.extend([0, 0]),
            Buffer::Fixed16(bytes) => bytes.extend([0; 16]),
            Buffer::Spans { offsets, .. } => {
                let end = offsets.last().copied().unwrap_or(0);
                offsets.push(end);
            }
        }
    }

    pushes! {
        push_i16, extend_i16, i16, Int16, "int16";
        push_i32, extend_i32, i32, Int32, "int32 or date (days since 1970-01-01)";
        push_i64, extend_i64, i64, Int64, "int64, time, timestamp or timestamp_tz (microseconds)";
        push_f32, extend_f32, f32, Float32, "float32";
        push_f64, extend_f64, f64, Float64, "float64";
    }

    /// Appends a boolean. Panics for a column of another type.
    #[inline]
    pub fn push_bool(&mut self, value: bool) {
        match &mut self.values {
            Buffer::Bits(bits) => bits.push(value),
            _ => self.mismatch("push_bool"),
        }
        self.pushed_valid(1);
    }

    /// Appends the unscaled integer of a decimal. Panics for a column of another type.
    #[inline]
    pub fn push_i128(&mut self, value: i128) {
        match &mut self.values {
            // The low and the high word of the two's complement.
            Buffer::Int128(words) => words.extend([value as u64, (value >> 64) as u64]),
            _ => self.mismatch("push_i128"),
        }
        self.pushed_valid(1);
    }

    /// Appends a UUID. Panics for a column of another type.
    #[inline]
    pub fn push_uuid(&mut self, value: &[u8; 16]) {
        match &mut self.values {
            Buffer::Fixed16(bytes) => bytes.extend_from_slice(value),
            _ => self.mismatch("push_uuid"),
        }
        self.pushed_valid(1);
    }

    /// Appends bytes, or the UTF-8 of a text, numeric or JSON value; the host checks it. Panics for a column of
    /// another type.
    #[inline]
    pub fn push_bytes(&mut self, value: &[u8]) {
        match &mut self.values {
            Buffer::Spans { offsets, data } => {
                data.extend_from_slice(value);
                offsets.push(end_offset(data.len()));
            }
            _ => self.mismatch("push_bytes"),
        }
        self.pushed_valid(1);
    }

    /// [`push_bytes`](Self::push_bytes) under the name that fits text.
    #[inline]
    pub fn push_text(&mut self, value: &[u8]) {
        self.push_bytes(value);
    }

    /// Appends a text, numeric or JSON value. Panics for a column of another type.
    #[inline]
    pub fn push_str(&mut self, value: &str) {
        self.push_bytes(value.as_bytes());
    }

    /// Appends what `write` appends to the column's data: a value that is composed in place.
    ///
    /// Panics for a column that is not text, numeric, JSON or bytes.
    #[inline]
    pub fn push_with<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let result = match &mut self.values {
            Buffer::Spans { offsets, data } => {
                let start = data.len();
                let result = write(data);
                assert!(data.len() >= start, "push_with may only append");
                offsets.push(end_offset(data.len()));
                result
            }
            _ => self.mismatch("push_with"),
        };
        self.pushed_valid(1);
        result
    }

    #[inline]
    fn pushed_valid(&mut self, n: usize) {
        self.len += n;
        if let Some(validity) = &mut self.validity {
            validity.push_ones(n);
        }
    }

    #[cold]
    fn mismatch(&self, call: &str) -> ! {
        panic!("{call} on a column of type {}", self.data_type)
    }

    /// Takes the values as a column. The builder is empty afterwards.
    pub fn finish(&mut self) -> Column {
        self.len = 0;
        Column {
            validity: self.validity.take().map(|bits| bits.bytes),
            values: self.values.take(),
        }
    }
}

impl Buffer {
    fn new(data_type: DataType) -> Self {
        match data_type {
            DataType::Boolean => Buffer::Bits(Bits::default()),
            DataType::Int16 => Buffer::Int16(Vec::new()),
            DataType::Int32 | DataType::Date => Buffer::Int32(Vec::new()),
            DataType::Int64 | DataType::Time | DataType::Timestamp | DataType::TimestampTz => {
                Buffer::Int64(Vec::new())
            }
            DataType::Float32 => Buffer::Float32(Vec::new()),
            DataType::Float64 => Buffer::Float64(Vec::new()),
            DataType::Decimal(_) => Buffer::Int128(Vec::new()),
            DataType::Uuid => Buffer::Fixed16(Vec::new()),
            DataType::Numeric | DataType::Text | DataType::Bytes | DataType::Json => Buffer::Spans {
                offsets: vec![0],
                data: Vec::new(),
            },
        }
    }

    fn bits_per_row(&self) -> usize {
        match self {
            Buffer::Bits(_) => 1,
            Buffer::Int16(_) => 16,
            Buffer::Int32(_) | Buffer::Float32(_) | Buffer::Spans { .. } => 32,
            Buffer::Int64(_) | Buffer::Float64(_) => 64,
            Buffer::Int128(_) | Buffer::Fixed16(_) => 128,
        }
    }

    #[inline]
    fn data_bytes(&self) -> usize {
        match self {
            Buffer::Spans { data, .. } => data.len(),
            _ => 0,
        }
    }

    /// Takes the values; the new buffers have room for as many.
    fn take(&mut self) -> Values {
        fn take<T>(values: &mut Vec<T>) -> Vec<T> {
            let next = Vec::with_capacity(values.len());
            std::mem::replace(values, next)
        }
        match self {
            Buffer::Bits(bits) => Values::Bits(bits.take()),
            Buffer::Int16(values) => Values::Int16(take(values)),
            Buffer::Int32(values) => Values::Int32(take(values)),
            Buffer::Int64(values) => Values::Int64(take(values)),
            Buffer::Float32(values) => Values::Float32(take(values)),
            Buffer::Float64(values) => Values::Float64(take(values)),
            Buffer::Int128(words) => Values::Int128(take(words)),
            Buffer::Fixed16(bytes) => Values::Fixed16(take(bytes)),
            Buffer::Spans { offsets, data } => {
                let taken = Spans {
                    offsets: take(offsets),
                    data: take(data),
                };
                offsets.push(0);
                Values::Spans(taken)
            }
        }
    }
}

/// Where a value ends. The limit is Arrow's; a batch that respects its own limits stays far below it.
#[inline]
fn end_offset(len: usize) -> i32 {
    i32::try_from(len).expect("a column of one batch holds less than 2 GiB")
}
