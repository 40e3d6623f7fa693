//! Reading an object: pieces are fetched ahead of the reader, and a body that breaks off is gone on with.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use aws_sdk_s3::Client;
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use bytes::{Buf, Bytes};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::client::SILENCE_TIMEOUT;
use super::engine::Engine;
use super::failure::{Failure, causes};

/// How many pieces, of at most some hundred KiB each, wait for the reader.
const PIECES_AHEAD: usize = 8;
/// How often one object's body may break off.
const RESUMPTIONS: usize = 5;

/// An object of a bucket.
#[derive(Clone)]
pub(super) struct Object {
    pub(super) client: Client,
    pub(super) bucket: String,
    pub(super) key: String,
}

impl Object {
    /// Asks for the object, and waits for its head.
    pub(super) async fn open(&self) -> Result<GetObjectOutput, Failure> {
        let request = self.client.get_object().bucket(&self.bucket).key(&self.key);
        Ok(request.send().await?)
    }

    /// Asks for the rest of the very object that has this ETag.
    async fn open_rest(&self, from: u64, etag: &str) -> Result<GetObjectOutput, Failure> {
        let request = self.client.get_object().bucket(&self.bucket).key(&self.key);
        let rest = request
            .range(format!("bytes={from}-"))
            .if_match(etag)
            .send()
            .await?;
        // A store may ignore either of the two.
        let is_rest = rest
            .content_range()
            .is_some_and(|range| range.starts_with(&format!("bytes {from}-")));
        if !is_rest {
            return Err(Failure::new("the server does not send parts of objects"));
        }
        if rest.e_tag() != Some(etag) {
            return Err(Failure::new("the object was replaced meanwhile"));
        }
        Ok(rest)
    }
}

/// What the fetching task sends: pieces, then an end or an error. A task that dies sends neither.
enum Piece {
    Bytes(Bytes),
    End,
}

/// Reads one object's body.
pub(super) struct ObjectReader {
    pieces: mpsc::Receiver<io::Result<Piece>>,
    current: Bytes,
    ended: bool,
    task: JoinHandle<()>,
    /// The task runs on it.
    _engine: Arc<Engine>,
}

impl ObjectReader {
    pub(super) fn new(engine: &Arc<Engine>, object: Object, opened: GetObjectOutput) -> ObjectReader {
        let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
        ObjectReader {
            pieces,
            current: Bytes::new(),
            ended: false,
            task: engine.spawn(fetch(object, opened, sender)),
            _engine: Arc::clone(engine),
        }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended && !buffer.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Ok(Piece::Bytes(bytes))) => self.current = bytes,
                Some(Ok(Piece::End)) => self.ended = true,
                Some(Err(error)) => return Err(error),
                None => return Err(io::Error::other("reading the object failed before")),
            }
        }
        let size = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..size]);
        Ok(size)
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Fetches a body piece by piece until it is whole or can be had no further. That nobody reads any more is no matter
/// here: the reader ends this task.
async fn fetch(object: Object, opened: GetObjectOutput, sender: mpsc::Sender<io::Result<Piece>>) {
    let end = match fetch_all(&object, opened, &sender).await {
        Ok(()) => Ok(Piece::End),
        Err(error) => Err(error),
    };
    let _ = sender.send(end).await;
}

async fn fetch_all(
    object: &Object,
    opened: GetObjectOutput,
    sender: &mpsc::Sender<io::Result<Piece>>,
) -> io::Result<()> {
    let length = opened
        .content_length()
        .and_then(|length| u64::try_from(length).ok());
    let etag = opened.e_tag().map(str::to_owned);
    let mut body = opened.body;
    let mut received = 0;
    let mut resumptions = 0;
    loop {
        let cut = match tokio::time::timeout(SILENCE_TIMEOUT, body.next()).await {
            Ok(Some(Ok(bytes))) => {
                received += bytes.len() as u64;
                let _ = sender.send(Ok(Piece::Bytes(bytes))).await;
                continue;
            }
            Ok(None) if length.is_none_or(|length| length == received) => return Ok(()),
            // All is there; how the connection ends does not matter.
            Ok(Some(Err(_))) if length == Some(received) => return Ok(()),
            Ok(None) => "the connection ended".to_owned(),
            Ok(Some(Err(error))) => causes(&error),
            Err(_) => format!("nothing came for {} s", SILENCE_TIMEOUT.as_secs()),
        };
        let broken = |why: &str| {
            let of = length.map_or(String::new(), |length| format!(" of {length}"));
            let text = format!("the body broke off after {received}{of} bytes: {cut}{why}");
            io::Error::new(ErrorKind::UnexpectedEof, text)
        };
        // More than was announced cannot be mended either.
        let (Some(etag), true) = (&etag, length.is_some_and(|length| received < length)) else {
            return Err(broken(""));
        };
        if resumptions == RESUMPTIONS {
            return Err(broken(", not for the first time"));
        }
        resumptions += 1;
        tracing::debug!(
            key = object.key,
            received,
            cut,
            "the body broke off; going on with the rest"
        );
        body = match object.open_rest(received, etag).await {
            Ok(rest) => rest.body,
            Err(failure) => return Err(broken(&format!("; asked for the rest: {}", failure.into_io()))),
        };
    }
}
