//! One stream of a run: extract, load, or direct.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::choose::{Choice, Situation, by_count, choose};
use super::copy::{Commits, Control, copy, interrupted};
use super::guarded::{Claims, GuardedWriter};
use super::marks::HostMarks;
use super::record::{Attempts, CopyMode, RunRecord, SharedRecord, StreamRecord, StreamStatus};
use super::state::{move_state, read_state, window_start};
use super::track::{HighWaterMark, MarkedReader, RecordedWriter, TrackedReader, check_mark, noted};
use super::turn::{Dead, Turn};
use super::{Environment, Event, Half, Mode, Options, Phase, StreamReport};
use crate::connector::{
    Destination, Error, ErrorKind, LoadRequest, Position, ReadRequest, Reader, Result, Role, Source, Writer,
};
use crate::crash;
use crate::pipeline::Job;
use crate::plugin::{Denials, OpenContext, Plugin};
use crate::record::{DataType, Field, StreamInfo, StreamName};
use crate::staging::cursor::CursorValue;
use crate::staging::{self, BlobSink, BlobSource, Fence, ManifestStatus, Resume, RunLayout, read_manifest};

/// How long `--wait` waits between two looks at a manifest.
pub(super) const WAIT: Duration = Duration::from_millis(500);

/// Everything that the streams of a run share.
pub(super) struct RunContext<'a> {
    pub(super) job: &'a Job,
    pub(super) options: &'a Options,
    pub(super) environment: &'a Environment,
    pub(super) layout: RunLayout,
    pub(super) record: SharedRecord,
    /// Asked before anything is made durable.
    pub(super) fence: Arc<dyn Fence>,
}

/// One stream of the run.
pub(super) struct Stream<'a> {
    run: &'a RunContext<'a>,
    name: StreamName,
    /// What the source says of it; none where only the load half runs.
    info: Option<StreamInfo>,
    /// As it was when this process started with it.
    record: StreamRecord,
    /// Which attempt of each half this is.
    attempts: Attempts,
    /// Cancelled by the user, or by one end of a copy to stop the other.
    cancel: CancellationToken,
    /// Both ends have answered, and rows are on their way.
    under_way: bool,
    /// What the sandbox refused either end.
    denials: Denials,
    report: StreamReport,
}

/// How an attempt at a stream went.
pub(super) struct Ended {
    /// As far as the stream came; says nothing yet of an error.
    pub(super) report: StreamReport,
    pub(super) error: Option<Error>,
    /// Both ends had answered before it ended.
    pub(super) under_way: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        run: &'a RunContext<'a>,
        record: &RunRecord,
        stream: &StreamRecord,
        info: Option<StreamInfo>,
        denials: Denials,
    ) -> Result<Self> {
        let name = stream.stream.parse::<StreamName>();
        Ok(Stream {
            run,
            name: name.map_err(|error| Error::new(ErrorKind::Staging, error.to_string()))?,
            info,
            record: stream.clone(),
            attempts: record.attempts,
            cancel: run.environment.cancel.child_token(),
            under_way: false,
            denials,
            report: StreamReport {
                stream: stream.stream.clone(),
                ..StreamReport::default()
            },
        })
    }

    /// Carries out what the invocation asked for.
    pub(super) fn carry_out(mut self) -> Ended {
        let result = match self.run.options.half {
            Half::Extract => self.begin().and_then(|_| self.extract()),
            Half::Load { wait } => self.load(wait),
            Half::Both => self.both(),
        };
        Ended {
            report: self.report,
            error: result.err(),
            under_way: self.under_way,
        }
    }

    fn both(&mut self) -> Result<()> {
        if self.record.status == StreamStatus::Done {
            return self.already_done();
        }
        match self.begin()? {
            CopyMode::Direct => self.direct(),
            CopyMode::Staged => {
                self.extract()?;
                self.load(false)
            }
        }
    }

    /// A finished stream of a run that is called again: nothing is read or written.
    fn already_done(&mut self) -> Result<()> {
        let manifest = read_manifest(&*self.run.environment.blob, &self.run.layout, &self.name)?;
        let parts = manifest.map_or(0, |manifest| manifest.parts.len() as u64);
        self.report.rows = self.record.rows;
        (self.report.parts, self.report.parts_skipped) = (parts, parts);
        self.report.cursor.clone_from(&self.record.high_water_mark);
        // A process that was frozen while another finished the run may have said that it is at it.
        self.turn().map_or(Ok(()), |turn| turn.give_back())
    }

    /// Decides how the stream is copied and, when the run begins with it, where its window starts; the record knows
    /// both before anything is copied.
    fn begin(&mut self) -> Result<CopyMode> {
        let blob = &*self.run.environment.blob;
        let manifest = read_manifest(blob, &self.run.layout, &self.name)?;
        let staged = manifest.is_some();
        let has_rows = manifest.is_some_and(|manifest| {
            manifest.status == ManifestStatus::Complete || !manifest.parts.is_empty()
        });
        let is_read = has_rows || self.record.load_begun || self.record.status == StreamStatus::Done;
        if self.record.mode.is_none() || !is_read {
            self.take_window()?;
        }
        if self.run.options.half == Half::Both {
            // Better now than after all of it is read.
            self.check_turn()?;
        }
        let situation = Situation {
            requested: self.run.options.mode,
            recorded: self.record.mode,
            staged,
        };
        let mode = match choose(&self.record.stream, situation)? {
            Choice::Mode(mode) => mode,
            Choice::Count => {
                let most = self.run.options.direct_max_rows;
                let request = self.request();
                by_count(self.open_source()?.count(&request, most.saturating_add(1))?, most)
            }
        };
        self.record.mode = Some(mode);
        let begun = self.record.clone();
        self.run.record.update_stream(&self.record.stream, |record| {
            record.mode = begun.mode;
            record.since.clone_from(&begun.since);
            record.after.clone_from(&begun.after);
        })?;
        Ok(mode)
    }

    /// The window starts where the stream has been loaded to by now.
    fn take_window(&mut self) -> Result<()> {
        let Some(window) = self.record.window() else {
            return Ok(());
        };
        let layout = &self.run.layout;
        let state = read_state(&*self.run.environment.blob, layout, &self.name)?;
        let (field, write) = (&window.field, self.record.write);
        self.record.since = window_start(layout, &self.name, state.as_ref(), field, write)?;
        let schema = self.info.as_ref().map(|info| &info.schema);
        let data_type = schema.and_then(|schema| Some(schema.fields[schema.index_of(field)?].data_type));
        if let (Some(since), Some(data_type)) = (&self.record.since, data_type)
            && CursorValue::from_text(data_type, since).is_err()
        {
            let message = format!(
                "the state `{}` says that stream {} has been loaded up to something that is no {data_type}, which its \
                 cursor `{field}` is now: mend it, or remove it to read the stream from its start",
                layout.state(&self.name),
                self.name
            );
            return Err(Error::new(ErrorKind::Staging, message));
        }
        self.record.after = state.and_then(|state| state.reached);
        Ok(())
    }

    /// Refuses to load an incremental stream that another run is at, or has loaded further in the meantime.
    fn check_turn(&self) -> Result<()> {
        self.turn().map_or(Ok(()), |turn| turn.check().map(|_| ()))
    }

    /// None where the stream is read in full: then loads of two runs do not depend on each other.
    fn turn(&self) -> Option<Turn> {
        self.record.window()?;
        Some(Turn {
            blob: self.run.environment.blob.clone(),
            layout: self.run.layout.clone(),
            stream: self.name.clone(),
            record: self.record.clone(),
            over: None,
        })
    }

    // ---- extract

    fn extract(&mut self) -> Result<()> {
        let info = self.at_source()?;
        let manifest = read_manifest(&*self.run.environment.blob, &self.run.layout, &self.name)?;
        let resume = staging::resume(manifest.as_ref(), info.resumable);
        let kept = manifest.as_ref().map_or(&[][..], |manifest| match &resume {
            Resume::Fresh => &[][..],
            Resume::After { parts, .. } => &manifest.parts[..(*parts).min(manifest.parts.len())],
            Resume::Complete => &manifest.parts[..],
        });
        let rows_kept = kept.iter().map(|part| part.rows).sum();
        self.report.parts_skipped = kept.len() as u64;
        self.started(Phase::Extract, info.estimated_rows, rows_kept);
        match resume {
            Resume::Complete => {}
            Resume::Fresh => {
                self.extract_from(&info, Resume::Fresh, None)?;
            }
            after @ Resume::After { .. } => {
                let fields = manifest
                    .as_ref()
                    .map(|manifest| manifest.schema.fields.as_slice());
                if let Extracted::Refused(reason) = self.extract_from(&info, after, fields)? {
                    self.note(&format!("{}: reading starts over: {reason}", self.record.stream));
                    self.report.parts_skipped = 0;
                    self.extract_from(&info, Resume::Fresh, None)?;
                }
            }
        }
        let manifest = self.manifest()?;
        self.report.rows = manifest.rows_total;
        self.report.parts = manifest.parts.len() as u64;
        self.report.cursor = manifest.cursor();
        let rows = manifest.rows_total;
        check_mark(&self.record, rows, self.report.cursor.as_deref())?;
        self.run.record.update_stream(&self.record.stream, |record| {
            record.status = StreamStatus::Extracted;
            record.rows = rows;
            record.error = None;
        })
    }

    /// `staged` are the fields of the parts that are kept.
    fn extract_from(
        &mut self,
        info: &StreamInfo,
        resume: Resume,
        staged: Option<&[Field]>,
    ) -> Result<Extracted> {
        let mut request = self.request();
        request.resume_after = position(&resume);
        let mut source = self.open_source()?;
        let mut reader = match source.read(&request) {
            Ok(reader) => self.marked(reader, &request)?,
            Err(error) if error.kind() == ErrorKind::Conflict && request.resume_after.is_some() => {
                return Ok(Extracted::Refused(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        if staged.is_some_and(|staged| staged != reader.schema().fields) {
            return Ok(Extracted::Refused(
                "the stream's columns have changed since it was staged".into(),
            ));
        }
        let target = StreamInfo {
            schema: reader.schema().clone(),
            ..info.clone()
        };
        let blob = self.run.environment.blob.clone();
        let cursor = request.cursor.map(|window| window.field);
        let sink = BlobSink::new(blob, self.run.layout.clone(), self.name.clone(), resume, cursor);
        let mut sink = sink.fenced(self.run.fence.clone());
        let mut writer = sink.begin(&self.load_request(target, self.attempts.extract))?;
        self.copy(&mut reader, &mut *writer, Commits::ByWriter)?;
        Ok(Extracted::All)
    }

    // ---- load

    fn load(&mut self, wait: bool) -> Result<()> {
        if self.record.status == StreamStatus::Done {
            return self.already_done();
        }
        let requested = Mode::Staged;
        choose(
            &self.record.stream,
            Situation {
                requested,
                recorded: self.record.mode,
                staged: false,
            },
        )?;
        while wait && !self.is_staged()? {
            if self.run.environment.cancel.is_cancelled() {
                return Err(interrupted());
            }
            std::thread::sleep(WAIT);
        }
        let (blob, layout) = (self.run.environment.blob.clone(), self.run.layout.clone());
        let mut source = BlobSource::open(blob, layout, self.name.clone())?;
        source.check()?;
        self.check_turn()?;
        let manifest = self.manifest()?;
        check_mark(&self.record, manifest.rows_total, manifest.cursor().as_deref())?;
        let info = source
            .discover()?
            .pop()
            .ok_or_else(|| missing("the staged stream"))?;

        let mut destination = self.open_destination()?;
        let load = self.load_request(info, self.attempts.load);
        let mut writer = self.begin_load(&mut *destination, &load, manifest.parts.len() as u64)?;
        let after = writer.committed()?;
        self.load_begins()?;
        let mut request = ReadRequest::all(self.name.clone());
        request.resume_after = (after > 0).then(|| after.to_be_bytes().to_vec());
        let rows_before = manifest
            .parts
            .iter()
            .take(after as usize)
            .map(|part| part.rows)
            .sum();
        writer.goes_on_after(rows_before);
        self.started(Phase::Load, Some(manifest.rows_total), rows_before);
        // Where this process extracted as well, an earlier attempt may have done more of that.
        self.report.parts_skipped = self.report.parts_skipped.max(after);
        let mut reader = source.read(&request)?;
        self.copy(&mut *reader, &mut writer, Commits::EachChunk { after })?;

        self.report.rows = manifest.rows_total;
        self.report.parts = manifest.parts.len() as u64;
        let cursor = manifest.cursor();
        self.loaded(&load.target, cursor)
    }

    fn is_staged(&self) -> Result<bool> {
        let manifest = read_manifest(&*self.run.environment.blob, &self.run.layout, &self.name)?;
        Ok(manifest.is_some_and(|manifest| manifest.status == ManifestStatus::Complete))
    }

    // ---- direct

    fn direct(&mut self) -> Result<()> {
        let info = self.at_source()?;
        let request = self.request();
        let mut source = self.open_source()?;
        let mut destination = self.open_destination()?;
        let mark = HighWaterMark::default();
        let field = request.cursor.as_ref().map(|window| window.field.as_str());
        let reader = self.marked(source.read(&request)?, &request)?;
        let mut reader = TrackedReader::new(Box::new(reader), field, mark.clone());
        let target = StreamInfo {
            schema: reader.schema().clone(),
            ..info
        };
        let load = self.load_request(target, self.attempts.load);
        let mut writer = self.begin_load(&mut *destination, &load, 1)?;
        let stream = self.record.clone();
        self.started(Phase::Direct, load.target.estimated_rows, 0);
        let cursor = if writer.committed()? > 0 {
            // An earlier attempt committed the rows and died before the end: only the end is missing.
            let record = self.run.record.read()?;
            let record = record.as_ref().and_then(|record| record.stream(&stream.stream));
            self.report.rows = record.map_or(0, |record| record.rows);
            writer.goes_on_after(self.report.rows);
            writer.finish(None)?;
            record.and_then(|record| record.high_water_mark.clone())
        } else {
            let mut writer = RecordedWriter {
                inner: Box::new(writer),
                record: &self.run.record,
                stream: &stream,
                mark: mark.clone(),
                rows: 0,
            };
            self.copy(&mut reader, &mut writer, Commits::AtEnd)?;
            self.report.rows = writer.rows;
            noted(&mark)
        };
        self.loaded(&load.target, cursor)
    }

    // ---- what the phases share

    fn copy(&mut self, reader: &mut dyn Reader, writer: &mut dyn Writer, commits: Commits) -> Result<()> {
        let (observer, stream) = (&self.run.environment.observer, self.record.stream.as_str());
        let progress = |rows, bytes| observer.event(Event::Progress { stream, rows, bytes });
        let control = Control {
            progress: &progress,
            cancel: &self.cancel,
        };
        self.under_way = true;
        let copied = copy(reader, writer, commits, &control)?;
        self.report.bytes += copied.bytes;
        Ok(())
    }

    /// Notes that rows of the stream may be at the destination from now on.
    fn load_begins(&mut self) -> Result<()> {
        if self.record.load_begun {
            return Ok(());
        }
        self.record.load_begun = true;
        self.run
            .record
            .update_stream(&self.record.stream, |record| record.load_begun = true)
    }

    /// After `finish`: the state moves and others may have their turn, then the run's record says done.
    fn loaded(&mut self, target: &StreamInfo, cursor: Option<String>) -> Result<()> {
        if let Some(window) = self.record.window() {
            let index = target
                .schema
                .index_of(&window.field)
                .ok_or_else(|| missing("the cursor field"))?;
            let field = (window.field.as_str(), target.schema.fields[index].data_type);
            // That it has no rows is all that a mark of texts can say by itself: their order is the source's.
            let moves = cursor
                .as_deref()
                .filter(|_| self.report.rows > 0 || field.1 != DataType::Text);
            self.run.fence.check()?;
            move_state(
                &*self.run.environment.blob,
                &self.run.layout,
                &self.name,
                field,
                moves,
            )?;
        }
        let rows = self.report.rows;
        self.report.cursor.clone_from(&cursor);
        self.run.record.update_stream(&self.record.stream, |record| {
            record.status = StreamStatus::Done;
            record.high_water_mark.clone_from(&cursor);
            record.rows = rows;
            record.error = None;
        })
    }

    fn at_source(&self) -> Result<StreamInfo> {
        self.info.clone().ok_or_else(|| {
            let message = format!("the source has no stream {} any more", self.record.stream);
            Error::new(ErrorKind::NotFound, message)
        })
    }

    fn request(&self) -> ReadRequest {
        ReadRequest {
            cursor: self.record.window(),
            positions: self.info.as_ref().is_none_or(|info| info.resumable),
            ..ReadRequest::all(self.name.clone())
        }
    }

    fn load_request(&self, target: StreamInfo, attempt: u64) -> LoadRequest {
        LoadRequest {
            load_id: load_id(&self.run.layout, &self.record.stream),
            attempt,
            target,
            mode: self.record.write,
        }
    }

    fn manifest(&self) -> Result<staging::Manifest> {
        read_manifest(&*self.run.environment.blob, &self.run.layout, &self.name)?
            .ok_or_else(|| missing("the manifest"))
    }

    fn open_source(&self) -> Result<Box<dyn Source>> {
        let plugin = self.run.environment.plugin(Role::Source)?;
        plugin.open_source(&self.run.job.source, &self.open_context())
    }

    fn open_destination(&self) -> Result<Box<dyn Destination>> {
        let plugin = self.run.environment.plugin(Role::Destination)?;
        plugin.open_destination(&self.run.job.destination, &self.open_context())
    }

    /// Where an error of a connector's comes from.
    fn place(&self, connector: &Plugin) -> String {
        format!("connector {}, stream {}", connector.title(), self.record.stream)
    }

    /// A reader of the source's whose high-water mark is checked.
    fn marked<'r>(&self, reader: Box<dyn Reader + 'r>, request: &ReadRequest) -> Result<MarkedReader<'r>> {
        let field = request.cursor.as_ref().map(|window| window.field.as_str());
        let place = self.place(self.run.environment.plugin(Role::Source)?);
        Ok(MarkedReader::new(reader, field, place))
    }

    /// Starts the load of so many marks, or goes on with it.
    fn begin_load<'d>(
        &self,
        destination: &'d mut dyn Destination,
        load: &LoadRequest,
        marks: u64,
    ) -> Result<GuardedWriter<'d>> {
        let capabilities = destination.capabilities()?;
        if !capabilities.write_modes.contains(&load.mode) {
            let known: Vec<_> = capabilities.write_modes.iter().map(ToString::to_string).collect();
            let message = format!(
                "the destination cannot `{}`; set `write:` of stream {} to one of: {}",
                load.mode,
                load.target.name,
                known.join(", ")
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let RunContext {
            environment, layout, ..
        } = self.run;
        let mut turn = self.turn();
        if let Some(turn) = &mut turn
            && let Some(dead) = turn.check()?
        {
            let attempt = turn.shut_out(&dead)?;
            if capabilities.transactional {
                self.end_load(destination, load, &dead, attempt)?;
            }
        }
        let mut writer = crash::writer(destination.begin(load)?);
        if !capabilities.transactional {
            let key = layout.load_mark(&self.name);
            writer = Box::new(HostMarks::new(
                writer,
                environment.blob.clone(),
                key,
                &load.load_id,
            ));
        }
        let claims = Claims {
            place: self.place(environment.plugin(Role::Destination)?),
            run: layout.run().to_owned(),
            marks,
            has_begun: self.record.load_begun,
            transactional: capabilities.transactional,
        };
        Ok(GuardedWriter::new(writer, self.run.fence.clone(), turn, claims))
    }

    /// Sees that no process of a dead run commits anything more: to the destination this is a further attempt of its load,
    /// which ends or awaits a commit that is still under way.
    fn end_load(
        &self,
        destination: &mut dyn Destination,
        load: &LoadRequest,
        dead: &Dead,
        attempt: u64,
    ) -> Result<()> {
        let stream = dead
            .record
            .as_ref()
            .and_then(|record| record.stream(&self.record.stream));
        let request = LoadRequest {
            load_id: load_id(&dead.layout, &self.record.stream),
            attempt,
            mode: stream.map_or(load.mode, |stream| stream.write),
            ..load.clone()
        };
        drop(destination.begin(&request)?);
        Ok(())
    }

    fn open_context(&self) -> OpenContext {
        OpenContext {
            run: self.run.layout.run().to_owned(),
            stream: Some(self.record.stream.clone()),
            cancel: self.cancel.clone(),
            denials: self.denials.clone(),
        }
    }

    fn started(&self, phase: Phase, estimated_rows: Option<u64>, rows_done: u64) {
        let stream = &self.record.stream;
        self.event(Event::StreamStarted {
            stream,
            phase,
            estimated_rows,
            rows_done,
        });
    }

    fn note(&self, message: &str) {
        self.event(Event::Note { message });
    }

    fn event(&self, event: Event<'_>) {
        self.run.environment.observer.event(event);
    }
}

/// The load's id comes from the run, so that every attempt of the run has the same.
pub(super) fn load_id(layout: &RunLayout, stream: &str) -> String {
    let (workspace, pipeline, run) = (layout.workspace(), layout.pipeline(), layout.run());
    format!("{workspace}/{pipeline}/{run}/{stream}")
}

/// How an extract from a position ended.
enum Extracted {
    /// Every row is staged.
    All,
    /// Reading cannot go on from there; why.
    Refused(String),
}

fn position(resume: &Resume) -> Option<Position> {
    match resume {
        Resume::After { position, .. } => Some(position.clone()),
        Resume::Fresh | Resume::Complete => None,
    }
}

/// Something that this half of the run ought to have.
fn missing(what: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("{what} is missing; this is a defect of Setu"),
    )
}
