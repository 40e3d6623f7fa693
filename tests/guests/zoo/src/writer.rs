//! The destination. An honest table becomes a file of its rows when it is finished.

use std::cell::{Cell, RefCell};
use std::fs;
use std::time::Duration;

use crate::bindings::exports::setu::connector::destination;
use crate::bindings::setu::connector::types::{Batch, Column, Error, ErrorKind, Spans, Values};
use crate::{Config, Connection, Zoo, called, end, error, opened, resources};

pub(crate) struct Writer {
    config: Config,
    table: String,
    attempt: u64,
    text: RefCell<String>,
    rows: Cell<u64>,
    mark: Cell<u64>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        called();
    }
}

impl destination::Guest for Zoo {
    type Connection = Connection;
    type Writer = Writer;
}

impl destination::GuestConnection for Connection {
    fn open(config: String) -> Result<destination::Connection, Error> {
        opened();
        Config::parse(&config).map(|config| destination::Connection::new(Connection(config)))
    }

    fn check(&self) -> Result<(), Error> {
        called();
        Ok(())
    }

    /// True as long as nobody kills it between a commit and the end.
    fn capabilities(&self) -> destination::Capabilities {
        called();
        destination::Capabilities {
            write_modes: vec![destination::WriteMode::Overwrite],
            transactional: true,
        }
    }

    fn begin(&self, load: destination::LoadRequest) -> Result<destination::Writer, Error> {
        called();
        let table = load.target.name.name;
        if table == "fail-in-begin" {
            return Err(error(ErrorKind::Conflict, "the cage is taken"));
        }
        Ok(destination::Writer::new(Writer {
            config: self.0.clone(),
            table,
            attempt: load.attempt,
            text: RefCell::default(),
            rows: Cell::new(0),
            mark: Cell::new(0),
        }))
    }
}

impl destination::GuestWriter for Writer {
    fn committed(&self) -> u64 {
        called();
        match self.table.as_str() {
            "commits-beyond-all" => 1_000_000,
            "commits-before-asked" => 1,
            _ => self.mark.get(),
        }
    }

    fn write(&self, batch: Batch) -> Result<(), Error> {
        called();
        match self.table.as_str() {
            "panic-in-write" => {
                end();
                panic!("the bear is awake");
            }
            "loop-in-write" => {
                end();
                resources::spin(&self.config);
            }
            "break-once" if self.attempt == 1 => {
                let broke = error(ErrorKind::Unreachable, "the door fell shut");
                return Err(Error {
                    retryable: true,
                    ..broke
                });
            }
            "slow" => doze(),
            _ => {}
        }
        self.take(&batch);
        Ok(())
    }

    fn commit(&self, mark: u64) -> Result<(), Error> {
        called();
        match self.table.as_str() {
            "abort-in-commit" => {
                end();
                std::process::abort();
            }
            "fail-in-commit" => return Err(error(ErrorKind::Data, "the food is off")),
            "slow" => doze(),
            _ => {}
        }
        self.mark.set(mark);
        Ok(())
    }

    fn finish(&self) -> Result<destination::Summary, Error> {
        called();
        match self.table.as_str() {
            "never-finish" => {
                end();
                resources::spin(&self.config);
            }
            "slow" => doze(),
            _ => {}
        }
        let path = format!("{}/{}.csv", self.config.text("out"), self.table);
        let written = fs::write(&path, &*self.text.borrow());
        written.map_err(|cause| error(ErrorKind::Internal, &format!("{path}: {cause}")))?;
        let rows = self.rows.get();
        Ok(destination::Summary {
            rows_written: match self.table.as_str() {
                "count-too-few" => rows - 1,
                "count-too-many" => u64::MAX,
                _ => rows,
            },
        })
    }
}

/// Less than any limit, but not in all.
fn doze() {
    std::thread::sleep(Duration::from_millis(400));
}

impl Writer {
    fn take(&self, batch: &Batch) {
        let columns: Vec<_> = batch.columns.iter().map(texts).collect();
        let mut text = self.text.borrow_mut();
        for row in 0..batch.rows as usize {
            let fields: Vec<_> = columns.iter().map(|column| field(column, row)).collect();
            text.push_str(&fields.join(","));
            text.push('\n');
        }
        self.rows.set(self.rows.get() + u64::from(batch.rows));
    }
}

/// A CSV file's columns are text.
fn texts(column: &Column) -> &Spans {
    match &column.values {
        Values::Spans(spans) => spans,
        other => panic!("not text: {other:.20?}"),
    }
}

fn field(spans: &Spans, row: usize) -> String {
    let (from, to) = (spans.offsets[row] as usize, spans.offsets[row + 1] as usize);
    String::from_utf8_lossy(&spans.data[from..to]).into_owned()
}
