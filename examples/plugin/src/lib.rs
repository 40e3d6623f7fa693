//! A complete source: one stream, `countdown`, of as many rows as the configuration says.
use setu_sdk::{BatchBuilder, BatchLimit, Chunk, DataType, Field, ReadRequest, Reader, Result, Schema, Source};
use setu_sdk::{StreamInfo, StreamName, schemars::JsonSchema, serde::Deserialize};

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "setu_sdk::serde", deny_unknown_fields)]
#[schemars(crate = "setu_sdk::schemars")]
struct Config {
    /// The first number; the last is 1.
    from: i64,
}

struct Countdown { next: i64 }

fn schema() -> Schema {
    Schema::new([Field::new("n", DataType::Int64).not_null()]).with_primary_key(["n"])
}

impl Source for Countdown {
    type Config = Config;
    type Reader = Countdown;
    fn open(config: Config) -> Result<Self> { Ok(Countdown { next: config.from }) }
    fn check(&mut self) -> Result<()> { Ok(()) }
    fn discover(&mut self) -> Result<Vec<StreamInfo>> {
        Ok(vec![StreamInfo::new(StreamName::bare("countdown"), "numbers", schema())])
    }
    fn read(&mut self, _: ReadRequest) -> Result<Countdown> { Ok(Countdown { next: self.next }) }
}

impl Reader for Countdown {
    fn schema(&self) -> Schema { schema() }
    fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>> {
        let mut rows = BatchBuilder::new(&schema());
        while self.next > 0 && !rows.is_full(limit) { rows.column(0).push_i64(self.next); self.next -= 1; }
        Ok(rows.take_chunk(None))
    }
}

setu_sdk::source!(Countdown);
