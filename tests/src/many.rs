//! The table `many`, which is large enough to be struck in the middle of its way, and the pipeline `p` that copies it.

use std::process::Child;

use crate::{Database, Proxy, Setu, StagedStream, wait_until};

/// As many rows as make five parts.
pub const ROWS: usize = 220_000;

/// Bytes that are enough for two parts and not for all five: the rows are about 10 MB on the wire.
pub const MIDDLE: u64 = 6 << 20;

/// What tells one table from another. The order is that of whole rows, because a target may have no key.
pub const DIGEST: &str = "SELECT count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM many t";

/// A blob store in the pipeline's folder, as the value of `staging:`.
pub const STAGING: &str = "{ backend: fs, fsRoot: blob }";

/// A database with the table.
pub fn source() -> Database {
    source_of(ROWS)
}

/// The same with another number of rows.
pub fn source_of(rows: usize) -> Database {
    let source = Database::new();
    source.execute(&format!(
        "CREATE TABLE many AS SELECT i AS id, md5(i::text) AS h FROM generate_series(1, {rows}) i;
         ALTER TABLE many ADD PRIMARY KEY (id);"
    ));
    source
}

/// A folder with the pipeline from one URL to another.
pub fn pipeline(source: &str, target: &str, write: &str) -> Setu {
    Setu::with_pipeline(&yaml(source, target, &format!("write: {write}"), STAGING))
}

/// The text of a pipeline with these settings of the stream, such as `write: append`, and this blob store.
pub fn yaml(source: &str, target: &str, stream: &str, staging: &str) -> String {
    format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: \"{source}\" }} }}\n\
         destination: {{ connector: postgres, config: {{ url: \"{target}\" }} }}\n\
         streams: [{{ name: public.many, {stream} }}]\n\
         staging: {staging}\n"
    )
}

/// What run `r1` has staged in the pipeline's folder.
pub fn staged(setu: &Setu) -> StagedStream {
    StagedStream::new(setu.path("blob"), "p", "r1", "public_many")
}

/// Starts a command that extracts as run `r1` through a proxy, which stalls, and waits until so many parts are named.
#[track_caller]
pub fn stalling_extract(setu: &Setu, command: &str, proxy: &Proxy, parts: usize) -> Child {
    proxy.stall_after_receiving(MIDDLE);
    let child = setu.spawn_heard(command);
    wait_until("the parts are named", || staged(setu).named_parts() >= parts);
    child
}

/// Starts a command that loads through a proxy, and waits until it stalls.
#[track_caller]
pub fn stalling_load(setu: &Setu, command: &str, proxy: &Proxy) -> Child {
    proxy.stall_after_sending(MIDDLE);
    let child = setu.spawn_heard(command);
    wait_until("the load stalls", || proxy.is_stalled());
    child
}
