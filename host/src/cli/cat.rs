//! `setu cat`: the staged rows of a stream.

use super::args::{CatArguments, RowFormat};
use super::failure::Failure;
use super::output::Output;
use super::rows::{Reader, rows, write_csv, write_csv_header, write_object};
use super::store::Store;
use crate::connector::{BatchLimit, ReadRequest};
use crate::nearest;
use crate::record::StreamName;
use crate::runner::RunRecord;
use crate::staging::BlobSource;

/// Prints a stream's rows, part after part.
pub(super) fn cat(arguments: &CatArguments) -> Result<(), Failure> {
    let store = Store::open(&arguments.store)?;
    let (run, layout) = store.run(Some(&arguments.run))?;
    let name = stream_name(&run, &arguments.stream)?;
    let mut source = BlobSource::open(store.blob.clone(), layout, name.clone())?;
    let mut reader = source.read(&ReadRequest::all(name))?;
    let schema = reader.schema().clone();
    let mut output = Output::new();
    let reader_is = match output.is_terminal() {
        true => Reader::Person,
        false => Reader::Program,
    };
    if arguments.format == RowFormat::Csv {
        write_csv_header(&mut output, &schema, reader_is)?;
    }
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    while left > 0
        && let Some(chunk) = reader.next(BatchLimit::default())?
    {
        let wanted = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(chunk.batch.num_rows());
        left -= wanted as u64;
        for row in rows(&schema, &chunk.batch.slice(0, wanted))? {
            match arguments.format {
                RowFormat::Json => write_object(&mut output, &schema, &row)?,
                RowFormat::Csv => write_csv(&mut output, &row, reader_is)?,
            }
        }
    }
    output.done()
}

/// The stream, which must be one of the run's.
fn stream_name(run: &RunRecord, stream: &str) -> Result<StreamName, Failure> {
    if run.stream(stream).is_some() {
        return stream
            .parse()
            .map_err(|error: crate::record::ParseNameError| Failure::wrong(error.to_string()));
    }
    let names: Vec<&str> = run
        .streams
        .iter()
        .map(|stream| stream.stream.as_str())
        .take(20)
        .collect();
    let hint = nearest::hint(stream, &names);
    Err(Failure::wrong(format!(
        "run `{}` has no stream `{stream}`{hint}",
        run.run
    )))
}
