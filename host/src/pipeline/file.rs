//! The pipeline file: from YAML to a [`Job`], with every mistake reported at once.
//!
//! Only a connector can say whether its configuration is right, and finding and asking it is the caller's work. So
//! the file is read first, the caller adds what the connectors object to, and [`PipelineFile::finish`] gives either
//! the job or all the mistakes in the order of the file.

use std::fmt;
use std::path::{Path, PathBuf};

use super::decode::{Decoder, Fields};
use super::select::pattern;
use super::variables::{Lookup, is_name};
use super::yaml::{self, Mistake, Node, Place, Value};
use super::{ConnectorSpec, GrantSpec, Job, ReadMode, StreamSpec};
use crate::blob;
use crate::connector::{Role, WriteMode};
use crate::record::StreamName;
use crate::staging;

/// The folder of the default blob store, beside the pipeline file.
pub const DEFAULT_BLOB_ROOT: &str = ".setu/blob";

/// The blob store of a pipeline in this folder that nothing says another of.
pub fn default_staging(base: &Path) -> blob::Spec {
    let root: PathBuf = base.join(DEFAULT_BLOB_ROOT).components().collect();
    blob::Spec {
        backend: "fs".into(),
        fs_root: root.display().to_string(),
        ..blob::Spec::default()
    }
}

/// All mistakes of a pipeline file, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    /// The file, as the user wrote it.
    pub file: String,
    /// At least one.
    pub list: Vec<Mistake>,
}

impl Mistakes {
    /// One text for each.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let line = |mistake: &Mistake| format!("{}:{}: {}", self.file, mistake.place, mistake.message);
        self.list.iter().map(line)
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Mistakes {}

/// A pipeline file that was read, right or wrong.
pub struct PipelineFile {
    /// As the user wrote it.
    name: String,
    job: Job,
    mistakes: Vec<Mistake>,
    source: Side,
    destination: Side,
}

/// Where the parts of a side stand.
struct Side {
    /// The connector and its configuration could be read.
    usable: bool,
    connector: Place,
    node: Node,
}

impl PipelineFile {
    /// Reads a file. `blob_default` is where rows are staged unless the file says so itself; where it is empty too,
    /// they are staged beside the file. Fails only where the file cannot be read at all.
    pub fn read(path: &Path, lookup: Lookup<'_>, blob_default: &blob::Spec) -> std::io::Result<PipelineFile> {
        let bytes = std::fs::read(path)?;
        let absolute = std::path::absolute(path)?;
        let name = path.display().to_string();
        let base = absolute.parent().unwrap_or(&absolute);
        Ok(match String::from_utf8(bytes) {
            Ok(text) => PipelineFile::parse(&name, base, &text, lookup, blob_default),
            Err(error) => {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
                let mut file = PipelineFile::parse(&name, base, "{}", lookup, blob_default);
                file.mistakes = vec![Mistake {
                    place: Place { line, column: 1 },
                    message: "the file is not valid UTF-8".into(),
                }];
                file
            }
        })
    }

    /// Reads a file's text. `name` is for messages; relative paths are relative to `base`, which is absolute.
    pub fn parse(
        name: &str,
        base: &Path,
        text: &str,
        lookup: Lookup<'_>,
        blob_default: &blob::Spec,
    ) -> PipelineFile {
        let (root, mistakes) = yaml::parse(text, lookup);
        let empty = mistakes.is_empty();
        let mut reader = FileReader {
            decoder: Decoder { mistakes },
            name,
            base,
        };
        let root = root.filter(|root| !matches!(root.value, Value::Null));
        if root.is_none() && empty {
            reader.decoder.mistake(
                Place::START,
                "the file is empty; a pipeline needs `pipeline`, `source`, `destination` and `streams`",
            );
        }
        reader.pipeline(root.as_ref(), blob_default)
    }

    /// One side, where enough of it is right to look for its connector and check its configuration.
    pub fn side(&self, role: Role) -> Option<&ConnectorSpec> {
        match role {
            Role::Source => self.source.usable.then_some(&self.job.source),
            Role::Destination => self.destination.usable.then_some(&self.job.destination),
        }
    }

    /// Adds that a side's connector is not what it should be.
    pub fn connector_mistake(&mut self, role: Role, message: impl Into<String>) {
        let place = self.places(role).connector;
        let message = message.into();
        self.mistakes.push(Mistake { place, message });
    }

    /// Adds what is wrong at a JSON pointer within a side's configuration.
    pub fn config_mistake(&mut self, role: Role, pointer: &str, message: impl Into<String>) {
        let (place, node) = self.places(role).node.locate(&format!("/config{pointer}"));
        // A value that could not be read, such as that of a missing variable, is not to be blamed a second time.
        if self.mistakes.iter().any(|known| known.place == node.place) {
            return;
        }
        let property = pointer.replace('/', ".");
        let message = format!("`{role}.config{property}`: {}", message.into());
        self.mistakes.push(Mistake { place, message });
    }

    /// Adds a mistake at a JSON pointer within a side, such as `/grant/network/0`.
    pub fn side_mistake(&mut self, role: Role, pointer: &str, message: impl Into<String>) {
        let place = self.places(role).node.locate(pointer).0;
        let message = message.into();
        self.mistakes.push(Mistake { place, message });
    }

    /// The folder that the file stands in.
    pub fn folder(&self) -> &Path {
        &self.job.source.base
    }

    fn places(&self, role: Role) -> &Side {
        match role {
            Role::Source => &self.source,
            Role::Destination => &self.destination,
        }
    }

    /// The job, or all mistakes.
    pub fn finish(self) -> Result<Job, Mistakes> {
        if self.mistakes.is_empty() {
            return Ok(self.job);
        }
        let mut list = self.mistakes;
        list.sort_by_key(|mistake| mistake.place);
        Err(Mistakes {
            file: self.name,
            list,
        })
    }
}

/// Reads the parts of a pipeline. A part that is wrong is replaced by something empty: then there are mistakes, and
/// nobody gets to see it.
struct FileReader<'a> {
    decoder: Decoder,
    name: &'a str,
    base: &'a Path,
}

impl FileReader<'_> {
    fn pipeline(mut self, root: Option<&Node>, blob_default: &blob::Spec) -> PipelineFile {
        let keys = [
            "pipeline",
            "workspace",
            "source",
            "destination",
            "streams",
            "staging",
        ];
        let fields = root.and_then(|root| self.decoder.fields(root, "a pipeline", &keys));
        let fields = fields.as_ref();
        let workspace = fields.and_then(|fields| fields.get("workspace"));
        let workspace = match workspace {
            Some(node) => self.id(node, "workspace"),
            None => Some("default".to_owned()),
        };
        let mut required = |name| {
            let fields = fields?;
            self.decoder.required(fields, name)
        };
        let (pipeline, source, destination) =
            (required("pipeline"), required("source"), required("destination"));
        let streams = required("streams");
        let pipeline = pipeline.and_then(|node| self.id(node, "pipeline"));
        let (source_spec, source) = self.side(source, Role::Source);
        let (destination_spec, destination) = self.side(destination, Role::Destination);
        let job = Job {
            workspace: workspace.unwrap_or_default(),
            pipeline: pipeline.unwrap_or_default(),
            source: source_spec,
            destination: destination_spec,
            streams: streams.map(|node| self.streams(node)).unwrap_or_default(),
            staging: self.staging(fields, blob_default),
            plugins: std::collections::BTreeMap::new(),
        };
        PipelineFile {
            name: self.name.to_owned(),
            job,
            mistakes: self.decoder.mistakes,
            source,
            destination,
        }
    }

    fn id(&mut self, node: &Node, what: &'static str) -> Option<String> {
        let id = self.decoder.text(node, &format!("`{what}`"))?;
        match staging::check_id(what, id) {
            Ok(()) => Some(id.to_owned()),
            Err(error) => {
                self.decoder.mistake(node.place, error.to_string());
                None
            }
        }
    }

    fn side(&mut self, node: Option<&Node>, role: Role) -> (ConnectorSpec, Side) {
        let what = format!("`{role}`");
        let keys = ["connector", "config", "grant", "limits"];
        let fields = node.and_then(|node| self.decoder.fields(node, &what, &keys));
        let fields = fields.as_ref();
        let connector_node = fields.and_then(|fields| self.decoder.required(fields, "connector"));
        let connector = connector_node.and_then(|node| self.decoder.text(node, "`connector`"));
        let place = fields.map_or(Place::START, |fields| fields.place);
        let none = Node {
            place,
            value: Value::Map(Vec::new()),
        };
        let config = fields.and_then(|fields| fields.get("config"));
        if let Some(config) = config
            && self.decoder.map(config, "`config`").is_some()
            && let Value::Map(entries) = &config.value
        {
            entries
                .iter()
                .for_each(|(_, node)| self.decoder.unique_keys_below(node));
        }
        let config = config.unwrap_or(&none);
        let usable = connector.is_some() && matches!(config.value, Value::Map(_));
        let grant = fields.and_then(|fields| fields.get("grant"));
        let limits = fields.and_then(|fields| fields.get("limits"));
        let spec = ConnectorSpec {
            connector: connector
                .map(|connector| self.connector(connector))
                .unwrap_or_default(),
            config: config.to_json(),
            base: self.base.to_owned(),
            grant: grant.map(|node| self.grant(node)).unwrap_or_default(),
            limits: limits.map(|node| self.decoder.limits(node)).unwrap_or_default(),
        };
        let side = Side {
            usable,
            connector: connector_node.map_or(place, |node| node.place),
            node: node.cloned().unwrap_or(none.clone()),
        };
        (spec, side)
    }

    /// A connector's name, or the absolute path of its file.
    fn connector(&self, connector: &str) -> String {
        if crate::connector::registry::is_path(connector) {
            self.absolute(connector).display().to_string()
        } else {
            connector.to_owned()
        }
    }

    /// A path relative to the file, without `./` in its middle.
    fn absolute(&self, path: &str) -> PathBuf {
        let joined = self.base.join(path);
        joined.components().collect()
    }

    fn grant(&mut self, node: &Node) -> GrantSpec {
        let keys = ["network", "read", "write", "env"];
        let Some(fields) = self.decoder.fields(node, "`grant`", &keys) else {
            return GrantSpec::default();
        };
        let [network, read, write, env] = keys.map(|key| {
            let node = fields.get(key);
            node.map(|node| self.decoder.texts(node, &format!("`grant.{key}`")))
                .unwrap_or_default()
        });
        if let Some(node) = fields.get("env")
            && let Some(wrong) = env.iter().find(|name| !is_name(name))
        {
            self.decoder.mistake(
                node.place,
                format!("`{wrong}` in `grant.env` is no variable's name"),
            );
        }
        GrantSpec {
            network,
            read,
            write,
            env,
        }
    }

    fn streams(&mut self, node: &Node) -> Vec<StreamSpec> {
        let Some(items) = self.decoder.list(node, "`streams`") else {
            return Vec::new();
        };
        if items.is_empty() {
            self.decoder.mistake(
                node.place,
                "`streams` is empty; `- \"*\"` stands for all streams of the source",
            );
        }
        let mut streams: Vec<(StreamSpec, Place)> = Vec::new();
        for item in items {
            let Some(stream) = self.stream(item) else { continue };
            if let Some((_, first)) = streams.iter().find(|(other, _)| other.name == stream.name) {
                let message = format!(
                    "`{}` stands twice, first on line {}; the first entry decides about it",
                    stream.name, first.line
                );
                self.decoder.mistake(item.place, message);
            }
            streams.push((stream, item.place));
        }
        streams.into_iter().map(|(stream, _)| stream).collect()
    }

    fn stream(&mut self, node: &Node) -> Option<StreamSpec> {
        let place = Some(format!("{}:{}", self.name, node.place));
        if let Value::Text { .. } = node.value {
            let name = self.stream_name(node)?;
            return Some(StreamSpec {
                name,
                place,
                ..StreamSpec::default()
            });
        }
        if !matches!(node.value, Value::Map(_)) {
            let message = format!("a stream is a name, or a map with `name`; found {}", node.kind());
            self.decoder.mistake(node.place, message);
            return None;
        }
        let fields = self
            .decoder
            .fields(node, "a stream", &["name", "mode", "cursor", "write"])?;
        let name = self.decoder.required(&fields, "name");
        let name = name.and_then(|node| self.stream_name(node));
        let modes = [("full", ReadMode::Full), ("incremental", ReadMode::Incremental)];
        let mode = match fields.get("mode") {
            Some(node) => self.decoder.word(node, "mode", &modes),
            None => Some(ReadMode::Full),
        };
        let cursor_node = fields.get("cursor");
        let cursor = cursor_node.and_then(|node| self.decoder.text(node, "`cursor`"));
        match (mode, cursor_node) {
            (Some(ReadMode::Incremental), None) => self.decoder.mistake(
                fields.place,
                "`mode: incremental` needs a `cursor`: the field whose growth tells which rows are new",
            ),
            (Some(ReadMode::Full), Some(node)) => self.decoder.mistake(
                node.place,
                "`cursor` goes with `mode: incremental`; in mode `full` all rows are read",
            ),
            _ => {}
        }
        Some(StreamSpec {
            name: name?,
            mode: mode.unwrap_or_default(),
            cursor: cursor.map(str::to_owned),
            write: self.write(&fields, mode),
            place,
        })
    }

    fn stream_name(&mut self, node: &Node) -> Option<String> {
        let name = self.decoder.text(node, "`name`")?;
        let checked = match pattern(name) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => name
                .parse::<StreamName>()
                .map(|_| ())
                .map_err(|error| error.to_string()),
            Err(message) => Err(message),
        };
        match checked {
            Ok(()) => Some(name.to_owned()),
            Err(message) => {
                self.decoder.mistake(node.place, message);
                None
            }
        }
    }

    fn write(&mut self, fields: &Fields<'_>, mode: Option<ReadMode>) -> Option<WriteMode> {
        let node = fields.get("write")?;
        let words =
            [WriteMode::Append, WriteMode::Overwrite, WriteMode::Upsert].map(|mode| (mode.to_string(), mode));
        let words: Vec<(&str, WriteMode)> = words.iter().map(|(word, mode)| (word.as_str(), *mode)).collect();
        let write = self.decoder.word(node, "write mode", &words)?;
        if write == WriteMode::Overwrite && mode == Some(ReadMode::Incremental) {
            self.decoder.mistake(
                node.place,
                "`write: overwrite` with `mode: incremental` would leave nothing but the newest changes; use `upsert` or `append`",
            );
        }
        Some(write)
    }

    fn staging(&mut self, fields: Option<&Fields<'_>>, default: &blob::Spec) -> blob::Spec {
        match fields.and_then(|fields| fields.get("staging")) {
            Some(node) => self.blob(node),
            None if default.is_empty() => default_staging(self.base),
            None => default.clone(),
        }
    }

    fn blob(&mut self, node: &Node) -> blob::Spec {
        const FS: [&str; 1] = ["fsRoot"];
        const S3: [&str; 6] = [
            "endpoint",
            "region",
            "bucket",
            "accessKey",
            "secretKey",
            "forcePathStyle",
        ];
        let known: Vec<&str> = ["backend"].into_iter().chain(FS).chain(S3).collect();
        let mut spec = blob::Spec::default();
        let Some(fields) = self.decoder.fields(node, "`staging`", &known) else {
            return spec;
        };
        let backend = self.decoder.required(&fields, "backend");
        let fs = backend.and_then(|node| self.decoder.word(node, "backend", &[("fs", true), ("s3", false)]));
        let Some(fs) = fs else { return spec };
        let (name, foreign): (_, &[&str]) = if fs { ("fs", &S3) } else { ("s3", &FS) };
        for key in foreign {
            if let Some(node) = fields.get(key) {
                self.decoder.mistake(
                    node.place,
                    format!("`staging.{key}` does not go with `backend: {name}`"),
                );
            }
        }
        let mut text = |key: &str| {
            let node = fields.get(key)?;
            self.decoder
                .text(node, &format!("`staging.{key}`"))
                .map(str::to_owned)
        };
        let fs_root = text("fsRoot");
        spec.endpoint = text("endpoint").unwrap_or_default();
        spec.region = text("region").unwrap_or_default();
        spec.bucket = text("bucket").unwrap_or_default();
        spec.access_key = text("accessKey").unwrap_or_default();
        spec.secret_key = text("secretKey").unwrap_or_default();
        if let Some(node) = fields.get("forcePathStyle") {
            spec.force_path_style = self
                .decoder
                .boolean(node, "`staging.forcePathStyle`")
                .unwrap_or_default();
        }
        if fs {
            let root = fs_root.unwrap_or_else(|| DEFAULT_BLOB_ROOT.to_owned());
            spec.fs_root = self.absolute(&root).display().to_string();
        } else {
            self.decoder.required(&fields, "bucket");
        }
        spec.backend = name.to_owned();
        spec
    }
}

#[cfg(test)]
mod tests;
