//! What the host does with a source and a destination, reduced to what tests need.

use serde_json::json;
use setu_sdk::{
    BatchLimit, Chunk, Destination, LoadRequest, ReadRequest, Reader, Source, StreamInfo, StreamName,
    WriteMode, Writer,
};

use crate::{PostgresDestination, PostgresSource};

pub(super) const LIMIT: BatchLimit = BatchLimit {
    rows: 100,
    bytes: 1 << 20,
};

pub(super) fn source(config: serde_json::Value) -> PostgresSource {
    PostgresSource::open(serde_json::from_value(config).unwrap()).unwrap()
}

pub(super) fn destination(url: &str, schema: &str) -> PostgresDestination {
    let config = json!({ "url": url, "schema": schema });
    PostgresDestination::open(serde_json::from_value(config).unwrap()).unwrap()
}

/// The stream of this name as `discover` has it.
pub(super) fn stream(source: &mut PostgresSource, namespace: &str, name: &str) -> StreamInfo {
    let streams = source.discover().unwrap();
    let wanted = StreamName::new(namespace, name);
    let names: Vec<String> = streams.iter().map(|stream| stream.name.to_string()).collect();
    streams
        .into_iter()
        .find(|stream| stream.name == wanted)
        .unwrap_or_else(|| panic!("{wanted} is not among {names:?}"))
}

pub(super) fn read_request(info: &StreamInfo) -> ReadRequest {
    ReadRequest {
        name: info.name.clone(),
        columns: None,
        cursor: None,
        range: None,
        resume_after: None,
    }
}

/// All chunks of a read.
pub(super) fn read_all(source: &mut PostgresSource, request: ReadRequest, limit: BatchLimit) -> Vec<Chunk> {
    let mut reader = source.read(request).unwrap();
    std::iter::from_fn(|| reader.next(limit).unwrap()).collect()
}

pub(super) fn load(id: &str, attempt: u64, target: &StreamInfo, mode: WriteMode) -> LoadRequest {
    LoadRequest {
        load_id: id.to_owned(),
        attempt,
        target: target.clone(),
        mode,
    }
}

/// Reads a stream and writes it, each chunk a part.
pub(super) fn copy(
    source: &mut PostgresSource,
    info: &StreamInfo,
    destination: &mut PostgresDestination,
    id: &str,
    mode: WriteMode,
) -> u64 {
    let chunks = read_all(source, read_request(info), LIMIT);
    let mut writer = destination.begin(load(id, 1, info, mode)).unwrap();
    for (mark, chunk) in chunks.into_iter().enumerate() {
        writer.write(chunk.batch).unwrap();
        writer.commit(mark as u64 + 1).unwrap();
    }
    writer.finish().unwrap().rows_written
}
