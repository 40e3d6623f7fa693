//! Reads the columns of a batch that the host handed over. It has checked them.

use crate::types::{Batch, Column, Values};

/// One column of a batch, for reading. Cheap to copy.
///
/// An accessor of another type than the column's panics, as does a row beyond the batch's last. The value under a null
/// is arbitrary: ask [`is_null`](Self::is_null) first.
#[derive(Clone, Copy, Debug)]
pub struct ColumnView<'a> {
    validity: Option<&'a [u8]>,
    values: &'a Values,
}

impl Batch {
    /// The column at this position.
    ///
    /// # Panics
    /// Where there is none.
    pub fn column(&self, at: usize) -> ColumnView<'_> {
        self.columns[at].view()
    }

    /// All columns, in order.
    pub fn views(&self) -> Vec<ColumnView<'_>> {
        self.columns.iter().map(Column::view).collect()
    }
}

impl Column {
    /// The column, for reading.
    pub fn view(&self) -> ColumnView<'_> {
        ColumnView {
            validity: self.validity.as_deref(),
            values: &self.values,
        }
    }
}

#[inline]
fn bit(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (at % 8) & 1 == 1
}

/// The accessors of one fixed-width case: a value and all values.
macro_rules! accessors {
    ($($one:ident, $all:ident, $t:ty, $case:ident, $what:literal;)+) => {$(
        #[doc = concat!("A value of type ", $what, ".")]
        #[inline]
        pub fn $one(&self, row: usize) -> $t {
            self.$all()[row]
        }

        #[doc = concat!("All values of type ", $what, ".")]
        #[inline]
        pub fn $all(&self) -> &'a [$t] {
            match self.values {
                Values::$case(values) => values,
                _ => self.mismatch(stringify!($all)),
            }
        }
    )+};
}

impl<'a> ColumnView<'a> {
    /// Whether the value is null.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        self.validity.is_some_and(|bits| !bit(bits, row))
    }

    /// Whether some value may be null.
    pub fn may_have_nulls(&self) -> bool {
        self.validity.is_some()
    }

    accessors! {
        i16, i16s, i16, Int16, "int16";
        i32, i32s, i32, Int32, "int32 or date (days since 1970-01-01)";
        i64, i64s, i64, Int64, "int64, time, timestamp or timestamp_tz (microseconds)";
        f32, f32s, f32, Float32, "float32";
        f64, f64s, f64, Float64, "float64";
    }

    /// A boolean.
    #[inline]
    pub fn bool(&self, row: usize) -> bool {
        match self.values {
            Values::Bits(bits) => bit(bits, row),
            _ => self.mismatch("bool"),
        }
    }

    /// The unscaled integer of a decimal.
    #[inline]
    pub fn i128(&self, row: usize) -> i128 {
        match self.values {
            Values::Int128(words) => i128::from(words[2 * row + 1] as i64) << 64 | i128::from(words[2 * row]),
            _ => self.mismatch("i128"),
        }
    }

    /// A UUID's 16 bytes.
    #[inline]
    pub fn uuid(&self, row: usize) -> &'a [u8; 16] {
        match self.values {
            Values::Fixed16(bytes) => &bytes.as_chunks::<16>().0[row],
            _ => self.mismatch("uuid"),
        }
    }

    /// Bytes, or the UTF-8 of a text, numeric or JSON value.
    #[inline]
    pub fn bytes(&self, row: usize) -> &'a [u8] {
        match self.values {
            Values::Spans(spans) => &spans.data[spans.offsets[row] as usize..spans.offsets[row + 1] as usize],
            _ => self.mismatch("bytes"),
        }
    }

    /// A text, numeric or JSON value. Bytes that are not UTF-8, which the host lets through only in a column of bytes,
    /// panic.
    pub fn str(&self, row: usize) -> &'a str {
        std::str::from_utf8(self.bytes(row)).expect("the host checks that text is UTF-8")
    }

    #[cold]
    fn mismatch(&self, call: &str) -> ! {
        let case = match self.values {
            Values::Bits(_) => "bits",
            Values::Int16(_) => "int16",
            Values::Int32(_) => "int32",
            Values::Int64(_) => "int64",
            Values::Float32(_) => "float32",
            Values::Float64(_) => "float64",
            Values::Int128(_) => "int128",
            Values::Fixed16(_) => "fixed16",
            Values::Spans(_) => "spans",
        };
        panic!("{call} on a column of {case}")
    }
}

#[cfg(test)]
mod tests {
    use crate::{Batch, BatchBuilder, BatchLimit, DataType, Field, Schema};

    fn all_types() -> Schema {
        let types = [
            DataType::Boolean,
            DataType::Int16,
            DataType::Int32,
            DataType::Int64,
            DataType::Float32,
            DataType::Float64,
            DataType::decimal(38, 2),
            DataType::Uuid,
            DataType::Text,
        ];
        Schema::new(types.iter().map(|&t| Field::new(t.to_string(), t)))
    }

    fn push_row(builder: &mut BatchBuilder, i: i64) {
        builder.column(0).push_bool(i % 3 == 0);
        builder.column(1).push_i16(i as i16);
        builder.column(2).push_i32(-i as i32);
        builder.column(3).push_i64(i << 40);
        builder.column(4).push_f32(i as f32);
        builder.column(5).push_f64(-(i as f64));
        builder.column(6).push_i128(-i128::from(i) << 70);
        builder.column(7).push_uuid(&[i as u8; 16]);
        builder.column(8).push_str(&"x".repeat(i as usize));
    }

    fn assert_row(batch: &Batch, row: usize, i: i64) {
        let columns = batch.views();
        assert!(columns.iter().all(|column| !column.is_null(row)));
        assert_eq!(columns[0].bool(row), i % 3 == 0);
        assert_eq!(columns[1].i16(row), i as i16);
        assert_eq!(columns[2].i32(row), -i as i32);
        assert_eq!(columns[3].i64(row), i << 40);
        assert_eq!(columns[4].f32(row), i as f32);
        assert_eq!(columns[5].f64(row), -(i as f64));
        assert_eq!(columns[6].i128(row), -i128::from(i) << 70);
        assert_eq!(columns[7].uuid(row), &[i as u8; 16]);
        assert_eq!(columns[8].str(row), "x".repeat(i as usize));
    }

    #[test]
    fn what_was_pushed_is_read_back_with_nulls_at_any_place() {
        let schema = all_types();
        for null_rows in [
            vec![],
            vec![0],
            vec![7],
            vec![8],
            vec![0, 9, 17],
            (0..20).collect(),
        ] {
            let mut builder = BatchBuilder::new(&schema);
            // Twice: a builder is as good as new after a batch.
            for _ in 0..2 {
                for i in 0..20 {
                    if null_rows.contains(&i) {
                        builder.columns().iter_mut().for_each(|column| column.push_null());
                    } else {
                        push_row(&mut builder, i);
                    }
                }
                let batch = builder.finish();
                assert_eq!(batch.rows, 20);
                for i in 0..20 {
                    if null_rows.contains(&i) {
                        assert!(batch.views().iter().all(|column| column.is_null(i as usize)));
                    } else {
                        assert_row(&batch, i as usize, i);
                    }
                }
            }
        }
    }

    #[test]
    fn slices_append_like_single_values() {
        let schema = Schema::new([Field::new("a", DataType::Int64)]);
        let mut builder = BatchBuilder::new(&schema);
        builder.column(0).push_null();
        builder.column(0).extend_i64(&(0..30).collect::<Vec<_>>());
        builder.column(0).push_null();
        let batch = builder.finish();
        let nulls: Vec<usize> = (0..32).filter(|&row| batch.column(0).is_null(row)).collect();
        assert_eq!((batch.rows, nulls), (32, vec![0, 31]));
        assert_eq!(batch.column(0).i64(30), 29);
    }

    #[test]
    fn a_batch_is_full_by_rows_or_by_bytes() {
        let schema = Schema::new([Field::new("a", DataType::Int64), Field::new("b", DataType::Text)]);
        let mut builder = BatchBuilder::new(&schema);
        let limit = BatchLimit { rows: 3, bytes: 1000 };
        let mut push = |text: &str| {
            builder.column(0).push_i64(1);
            builder.column(1).push_str(text);
            let full = builder.is_full(limit);
            if full {
                builder.finish();
            }
            full
        };
        assert_eq!(["", "", ""].map(&mut push), [false, false, true]);
        assert_eq!(["", &"x".repeat(980)].map(&mut push), [false, true]);
    }

    #[test]
    #[should_panic(expected = "push_i64 on a column of type text")]
    fn a_push_of_another_type_says_which() {
        BatchBuilder::new(&Schema::new([Field::new("a", DataType::Text)]))
            .column(0)
            .push_i64(1);
    }

    #[test]
    #[should_panic(expected = "column 0 of length 1, the last of length 0")]
    fn uneven_columns_are_refused() {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int16));
        let mut builder = BatchBuilder::new(&Schema::new(fields));
        builder.column(0).push_i16(1);
        builder.finish();
    }
}
