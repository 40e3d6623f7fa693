//! The manifest of a staged stream: its form in JSON, and what makes one valid.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cursor::CursorValue;
use super::{FORMAT_VERSION, PART_ROWS, RunLayout};
use crate::connector::{MAX_POSITION_BYTES, Position};
use crate::record::{DataType, Field, Schema, StreamInfo, StreamName};

/// Whether all of a stream is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ManifestStatus {
    /// Parts may still come.
    Extracting,
    /// All parts are named.
    Complete,
}

/// One staged object.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its blob key.
    pub key: String,
    /// How many rows it holds.
    pub rows: u64,
    /// Its size in the blob store.
    pub bytes: u64,
    /// The least cursor value in it, in staged form.
    pub min_cursor: Option<Value>,
    /// The greatest cursor value in it, in staged form.
    pub max_cursor: Option<Value>,
    /// Where the source can go on after it.
    pub position: Option<Position>,
}

/// All that load needs to know of a staged stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The stream.
    pub stream: StreamName,
    /// "table", "view", "file", …
    pub stream_type: String,
    /// Its columns and key.
    pub schema: Schema,
    /// Whether it is complete.
    pub status: ManifestStatus,
    /// In order.
    pub parts: Vec<Part>,
    /// The sum over the parts.
    pub rows_total: u64,
    /// The cursor field of an incremental stream.
    pub cursor_field: Option<String>,
    /// The upper bound of the incremental window, in staged text form, as the source told it. Most often the
    /// greatest cursor value of the parts says the same; [`Manifest::cursor`] decides between the two.
    pub high_water_mark: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub completed_at: Option<String>,
    /// Which attempt of the extract wrote it: 1, 2, …
    pub attempt: u64,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the manifest `{key}` {reason}")]
pub struct ManifestError {
    /// The manifest's blob key.
    pub key: String,
    /// What is wrong, in words that follow "the manifest".
    pub reason: String,
}

impl Manifest {
    /// The cursor value that the next incremental run starts from, in staged text form: the source's high-water mark
    /// where there is one, else the greatest value in the parts; none where there is neither.
    pub fn cursor(&self) -> Option<String> {
        let found = || self.max_cursor().map(|max| max.to_string());
        self.high_water_mark.clone().or_else(found)
    }

    /// The greatest cursor value over all parts.
    fn max_cursor(&self) -> Option<CursorValue> {
        self.cursors(|part| part.max_cursor.as_ref())
            .reduce(|a, b| if b > a { b } else { a })
    }

    /// A cursor value of each part that has one.
    fn cursors<'a>(
        &'a self,
        of: impl Fn(&'a Part) -> Option<&'a Value> + 'a,
    ) -> impl Iterator<Item = CursorValue> + 'a {
        let parts = self.cursor_type().map(|data_type| (data_type, &self.parts));
        let values = parts
            .into_iter()
            .flat_map(|(data_type, parts)| parts.iter().map(move |part| (data_type, part)));
        values.filter_map(move |(data_type, part)| CursorValue::from_json(data_type, of(part)?).ok())
    }

    /// A value of the cursor field in staged text form; none where the manifest has another field or type.
    fn cursor_value(&self, field: &str, text: &str) -> Option<CursorValue> {
        let data_type = self.cursor_type()?;
        let is_same = self.cursor_field.as_deref() == Some(field);
        is_same.then(|| CursorValue::from_text(data_type, text).ok())?
    }

    /// Whether some row is not behind this value of the cursor field.
    pub(crate) fn begins_at_or_before(&self, field: &str, text: &str) -> bool {
        let value = self.cursor_value(field, text);
        value.is_some_and(|value| {
            self.cursors(|part| part.min_cursor.as_ref())
                .any(|least| least <= value)
        })
    }

    /// Whether all rows are before this value of the cursor field.
    pub(crate) fn ends_before(&self, field: &str, text: &str) -> bool {
        let value = self.cursor_value(field, text);
        value.is_some_and(|value| self.max_cursor().is_some_and(|greatest| greatest < value))
    }

    fn cursor_type(&self) -> Option<DataType> {
        let index = self.schema.index_of(self.cursor_field.as_deref()?)?;
        self.schema.fields.get(index).map(|field| field.data_type)
    }

    /// The high-water mark where the parts do not say the same already.
    fn high_water_mark_beyond_parts(&self) -> Option<String> {
        let mark = self.high_water_mark.as_ref()?;
        let said_by_parts = self
            .max_cursor()
            .is_some_and(|max| CursorValue::from_text(max.data_type(), mark).is_ok_and(|mark| mark == max));
        (!said_by_parts).then(|| mark.clone())
    }

    /// The manifest as a JSON document.
    pub fn to_json(&self) -> Vec<u8> {
        let document = Document {
            format_version: FORMAT_VERSION,
            stream: self.stream.name.clone(),
            namespace: self.stream.namespace.clone(),
            stream_type: self.stream_type.clone(),
            schema: Columns {
                fields: self.schema.fields.clone(),
            },
            primary_key: self.schema.primary_key.clone(),
            status: self.status,
            parts: self.parts.iter().map(PartDocument::from).collect(),
            rows_total: self.rows_total,
            cursor_field: self.cursor_field.clone(),
            high_water_mark: self.high_water_mark_beyond_parts(),
            created_at: self.created_at.clone(),
            completed_at: self.completed_at.clone(),
            attempt: self.attempt,
        };
        // Nothing in it can fail to serialise: no map with odd keys, no type of its own that refuses.
        let mut json = serde_json::to_vec(&document).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// Reads and checks the manifest of a stream.
    pub fn from_json(
        json: &[u8],
        layout: &RunLayout,
        stream: &StreamName,
    ) -> Result<Manifest, ManifestError> {
        let read = || {
            check_version(json)?;
            let document: Document = serde_json::from_slice(json)
                .map_err(|e| format!("is damaged or written by something else: {e}"))?;
            let manifest = document.into_manifest()?;
            manifest.check(layout, stream)?;
            Ok(manifest)
        };
        read().map_err(|reason| ManifestError {
            key: layout.manifest(stream).to_string(),
            reason,
        })
    }

    /// The stream that a manifest says it is of.
    pub(super) fn stream_of(json: &[u8]) -> Result<StreamName, String> {
        #[derive(Deserialize)]
        struct Named {
            stream: String,
            namespace: Option<String>,
        }
        check_version(json)?;
        let Named { stream, namespace } = serde_json::from_slice(json)
            .map_err(|e| format!("is damaged or written by something else: {e}"))?;
        Ok(StreamName {
            namespace,
            name: stream,
        })
    }

    /// The staged stream, as a source would tell of it.
    pub fn info(&self) -> StreamInfo {
        StreamInfo {
            name: self.stream.clone(),
            kind: self.stream_type.clone(),
            schema: self.schema.clone(),
            estimated_rows: Some(self.rows_total),
            cursors: self.cursor_field.clone().into_iter().collect(),
            resumable: true,
        }
    }

    fn check(&self, layout: &RunLayout, stream: &StreamName) -> Result<(), String> {
        if self.stream != *stream {
            return Err(format!("is of the stream {}, not of {stream}", self.stream));
        }
        self.schema
            .validate()
            .map_err(|e| format!("has a wrong schema: {e}"))?;
        let cursor_type = self.cursor_type();
        if let (Some(field), None) = (&self.cursor_field, cursor_type) {
            return Err(format!("has the cursorField `{field}`, which is not a column"));
        }
        if let (Some(data_type), Some(mark)) = (cursor_type, &self.high_water_mark) {
            CursorValue::from_text(data_type, mark).map_err(|e| format!("has a wrong highWaterMark: {e}"))?;
        }
        let mut rows = 0_u64;
        for (index, part) in self.parts.iter().enumerate() {
            let wrong = |what: String| format!("names a wrong part {index}: {what}");
            let key = layout.part(stream, index);
            if part.key != key.as_str() {
                return Err(wrong(format!("its key is `{}` instead of `{key}`", part.key)));
            }
            part.check(cursor_type).map_err(wrong)?;
            rows = rows.saturating_add(part.rows);
        }
        if rows != self.rows_total {
            return Err(format!(
                "has rowsTotal {}, but its parts add up to {rows}",
                self.rows_total
            ));
        }
        Ok(())
    }
}

impl Part {
    fn check(&self, cursor_type: Option<DataType>) -> Result<(), String> {
        if !(1..=PART_ROWS).contains(&self.rows) {
            return Err(format!("it has {} rows; allowed are 1 to {PART_ROWS}", self.rows));
        }
        if self
            .position
            .as_ref()
            .is_some_and(|p| p.len() > MAX_POSITION_BYTES)
        {
            return Err(format!("its position is longer than {MAX_POSITION_BYTES} bytes"));
        }
        let Some(data_type) = cursor_type else {
            return Ok(());
        };
        for bound in [&self.min_cursor, &self.max_cursor].into_iter().flatten() {
            CursorValue::from_json(data_type, bound).map_err(|e| format!("its cursor bounds: {e}"))?;
        }
        Ok(())
    }
}

/// Refuses versions to come before anything else is read, as all else may have changed.
fn check_version(json: &[u8]) -> Result<(), String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        format_version: u64,
    }
    let Version { format_version } =
        serde_json::from_slice(json).map_err(|e| format!("is damaged or written by something else: {e}"))?;
    match format_version {
        1..=FORMAT_VERSION => Ok(()),
        0 => Err("has formatVersion 0, which never was".into()),
        newer => Err(format!(
            "has formatVersion {newer}; this version of Setu reads up to {FORMAT_VERSION}: use a newer one"
        )),
    }
}

/// The JSON form, version 1, in the order in which it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    format_version: u64,
    stream: String,
    namespace: Option<String>,
    stream_type: String,
    schema: Columns,
    primary_key: Vec<String>,
    status: ManifestStatus,
    parts: Vec<PartDocument>,
    rows_total: u64,
    cursor_field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    high_water_mark: Option<String>,
    created_at: String,
    completed_at: Option<String>,
    #[serde(default = "first", skip_serializing_if = "is_first")]
    attempt: u64,
}

fn first() -> u64 {
    1
}

fn is_first(attempt: &u64) -> bool {
    *attempt <= 1
}

#[derive(Serialize, Deserialize)]
struct Columns {
    fields: Vec<Field>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartDocument {
    key: String,
    rows: u64,
    bytes: u64,
    min_cursor: Option<Value>,
    max_cursor: Option<Value>,
    /// Base64.
    position: Option<String>,
}

impl From<&Part> for PartDocument {
    fn from(part: &Part) -> Self {
        PartDocument {
            key: part.key.clone(),
            rows: part.rows,
            bytes: part.bytes,
            min_cursor: part.min_cursor.clone(),
            max_cursor: part.max_cursor.clone(),
            position: part.position.as_ref().map(|position| BASE64.encode(position)),
        }
    }
}

impl Document {
    fn into_manifest(self) -> Result<Manifest, String> {
        let parts = self
            .parts
            .into_iter()
            .enumerate()
            .map(|(index, part)| {
                let position = part.position.map(|text| BASE64.decode(text)).transpose();
                Ok(Part {
                    key: part.key,
                    rows: part.rows,
                    bytes: part.bytes,
                    min_cursor: part.min_cursor,
                    max_cursor: part.max_cursor,
                    position: position.map_err(|e| {
                        format!("names a wrong part {index}: its position is not base64: {e}")
                    })?,
                })
            })
            .collect::<Result<_, String>>()?;
        Ok(Manifest {
            stream: StreamName {
                namespace: self.namespace,
                name: self.stream,
            },
            stream_type: self.stream_type,
            schema: Schema {
                fields: self.schema.fields,
                primary_key: self.primary_key,
            },
            status: self.status,
            parts,
            rows_total: self.rows_total,
            cursor_field: self.cursor_field,
            high_water_mark: self.high_water_mark,
            created_at: self.created_at,
            completed_at: self.completed_at,
            attempt: self.attempt,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn layout() -> RunLayout {
        RunLayout::new("w", "p", "r").unwrap()
    }

    fn orders() -> StreamName {
        StreamName::new("public", "orders")
    }

    fn field(name: &str, data_type: DataType, native_type: Option<&str>) -> Field {
        Field {
            name: name.into(),
            data_type,
            nullable: name != "id",
            native_type: native_type.map(Into::into),
        }
    }

    fn manifest() -> Manifest {
        let part = |index, rows, min: i32, max: i32| Part {
            key: layout().part(&orders(), index).to_string(),
            rows,
            bytes: 1000 + index as u64,
            min_cursor: Some(min.into()),
            max_cursor: Some(max.into()),
            position: Some(vec![index as u8, 255]),
        };
        Manifest {
            stream: orders(),
            stream_type: "table".into(),
            schema: Schema {
                fields: vec![
                    field("id", DataType::Int32, None),
                    field("tags", DataType::Text, Some("text[]")),
                ],
                primary_key: vec!["id".into()],
            },
            status: ManifestStatus::Complete,
            parts: vec![part(0, 50_000, 1, 10), part(1, 3, 2, 9)],
            rows_total: 50_003,
            cursor_field: Some("id".into()),
            high_water_mark: None,
            created_at: "2024-05-01T10:00:00.000Z".into(),
            completed_at: Some("2024-05-01T10:00:09.000Z".into()),
            attempt: 1,
        }
    }

    fn json() -> Value {
        serde_json::from_slice(&manifest().to_json()).unwrap()
    }

    fn read(json: &Value) -> Result<Manifest, String> {
        Manifest::from_json(json.to_string().as_bytes(), &layout(), &orders()).map_err(|e| e.to_string())
    }

    #[test]
    fn what_has_been_loaded_already_is_told_by_the_bounds_of_parts() {
        let manifest = manifest(); // 1 to 10
        for (field, value, begins_at_or_before, ends_before) in [
            ("id", "0", false, false),
            ("id", "1", true, false),
            ("id", "10", true, false),
            // As texts they are the other way round.
            ("id", "9", true, false),
            ("id", "11", true, true),
            ("tags", "11", false, false),
            ("id", "eleven", false, false),
        ] {
            assert_eq!(
                manifest.begins_at_or_before(field, value),
                begins_at_or_before,
                "{value}"
            );
            assert_eq!(manifest.ends_before(field, value), ends_before, "{value}");
        }
    }

    #[test]
    fn a_manifest_has_exactly_the_documented_fields() {
        let part = |index: u64, rows: u64, min: i32, max: i32, position: &str| {
            json!({
                "key": format!("ws/w/pl/p/run/r/stream/public_orders/part-00000{index}.jsonl.gz"),
                "rows": rows, "bytes": 1000 + index, "minCursor": min, "maxCursor": max, "position": position,
            })
        };
        let expected = json!({
            "formatVersion": 1,
            "stream": "orders",
            "namespace": "public",
            "streamType": "table",
            "schema": {"fields": [
                {"name": "id", "type": "int32", "nullable": false},
                {"name": "tags", "type": "text", "nullable": true, "nativeType": "text[]"},
            ]},
            "primaryKey": ["id"],
            "status": "complete",
            "parts": [part(0, 50_000, 1, 10, "AP8="), part(1, 3, 2, 9, "Af8=")],
            "rowsTotal": 50_003,
            "cursorField": "id",
            "createdAt": "2024-05-01T10:00:00.000Z",
            "completedAt": "2024-05-01T10:00:09.000Z",
        });
        assert_eq!(json(), expected);
        assert_eq!(read(&expected), Ok(manifest()));
    }

    #[test]
    fn unknown_fields_are_passed_over() {
        let mut json = json();
        json["later"] = json!({"a": 1});
        json["parts"][0]["later"] = json!(1);
        json["schema"]["fields"][0]["later"] = json!(1);
        assert_eq!(read(&json), Ok(manifest()));
    }

    #[test]
    fn the_cursor_is_the_mark_or_the_greatest_bound() {
        let with = |mark: Option<&str>| Manifest {
            high_water_mark: mark.map(Into::into),
            ..manifest()
        };
        assert_eq!(with(None).cursor().as_deref(), Some("10"), "by type, not as text");
        assert_eq!(with(Some("12")).cursor().as_deref(), Some("12"));
        for (mark, written) in [
            (None, false),
            (Some("10"), false),
            (Some("12"), true),
            (Some("9"), true),
        ] {
            let manifest = with(mark);
            let json: Value = serde_json::from_slice(&manifest.to_json()).unwrap();
            assert_eq!(json.get("highWaterMark").is_some(), written, "{mark:?}");
            assert_eq!(read(&json).unwrap().cursor(), manifest.cursor(), "{mark:?}");
        }
        let empty = Manifest {
            parts: Vec::new(),
            rows_total: 0,
            ..manifest()
        };
        assert_eq!(empty.cursor(), None);
    }

    #[test]
    fn a_manifest_that_breaks_a_rule_is_refused_by_name() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 16] = [
            (
                |j| j["formatVersion"] = json!(2),
                "has formatVersion 2; this version of Setu reads up to 1",
            ),
            (|j| *j = json!({"formatVersion": 7}), "has formatVersion 7"),
            (|j| j["formatVersion"] = json!(0), "formatVersion 0"),
            (|j| *j = json!({}), "formatVersion"),
            (
                |j| j["stream"] = json!("other"),
                "is of the stream public.other, not of public.orders",
            ),
            (
                |j| j["namespace"] = json!(null),
                "is of the stream orders, not of public.orders",
            ),
            (
                |j| j["schema"]["fields"][1]["name"] = json!("id"),
                "two fields are named `id`",
            ),
            (|j| j["primaryKey"] = json!(["x"]), "names `x`"),
            (
                |j| j["rowsTotal"] = json!(5),
                "has rowsTotal 5, but its parts add up to 50003",
            ),
            (
                |j| j["parts"][1]["key"] = json!("ws/x"),
                "wrong part 1: its key is `ws/x` instead of",
            ),
            (
                |j| j["parts"][0]["rows"] = json!(50_001),
                "wrong part 0: it has 50001 rows",
            ),
            (
                |j| j["parts"][0]["rows"] = json!(0),
                "wrong part 0: it has 0 rows",
            ),
            (
                |j| j["parts"][0]["maxCursor"] = json!("x"),
                "wrong part 0: its cursor bounds",
            ),
            (
                |j| j["parts"][0]["position"] = json!("?"),
                "wrong part 0: its position is not base64",
            ),
            (|j| j["cursorField"] = json!("x"), "cursorField `x`"),
            (|j| j["highWaterMark"] = json!("x"), "highWaterMark"),
        ];
        for (change, reason) in cases {
            let mut json = json();
            change(&mut json);
            let error = read(&json).unwrap_err();
            assert!(error.contains(reason), "{error}");
            assert!(
                error.contains("`ws/w/pl/p/run/r/stream/public_orders/_manifest.json`"),
                "{error}"
            );
        }
        let mut parts = json();
        parts["parts"].as_array_mut().unwrap().swap(0, 1);
        assert!(read(&parts).unwrap_err().contains("wrong part 0"));
        assert!(Manifest::from_json(b"{\"formatVer", &layout(), &orders()).is_err());
    }
}
