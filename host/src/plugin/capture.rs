//! A guest's standard error: its last few kilobytes are kept, because a panic's message is written nowhere else.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::secrets::Secrets;

const SHOWN_BYTES: usize = 8 << 10;

/// Takes everything that is written and keeps the end of it.
#[derive(Clone, Debug)]
pub(super) struct Capture {
    kept: Arc<Mutex<VecDeque<u8>>>,
    /// More than is shown, so that a secret which begins before that is known as one.
    most: usize,
}

impl Capture {
    /// `longest_secret`: the most bytes that one may take.
    pub(super) fn new(longest_secret: usize) -> Self {
        Capture {
            kept: Arc::default(),
            most: SHOWN_BYTES + longest_secret,
        }
    }

    /// What was written since the last call of this, at most its last 8 KiB, without secrets.
    pub(super) fn take(&self, secrets: &Secrets) -> String {
        let bytes: Vec<u8> = std::mem::take(&mut *self.lock()).into();
        // Never less than the bytes that it is made of, so nothing is shown that was not kept whole.
        let text = String::from_utf8_lossy(&bytes);
        secrets.scrub_from(&text, text.len().saturating_sub(SHOWN_BYTES))
    }

    fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.most)..];
        let mut kept = self.lock();
        let excess = (kept.len() + bytes.len()).saturating_sub(self.most);
        kept.drain(..excess);
        kept.extend(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.push(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Capture {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_end_of_a_flood_is_kept() {
        let capture = Capture::new(0);
        capture.push(b"start");
        for _ in 0..100 {
            capture.push(&[b'x'; 1000]);
        }
        capture.push(b"the end");
        let kept = capture.take(&Secrets::default());
        assert_eq!(kept.len(), SHOWN_BYTES);
        assert!(kept.ends_with("xthe end") && !kept.contains("start"));
        assert_eq!(capture.take(&Secrets::default()), "");
    }

    #[test]
    fn one_write_beyond_the_whole_capacity_is_cut() {
        let capture = Capture::new(0);
        capture.push(&[b'y'; 3 * SHOWN_BYTES]);
        assert_eq!(capture.take(&Secrets::default()).len(), SHOWN_BYTES);
    }

    #[test]
    fn a_secret_that_is_cut_where_the_end_begins_is_not_shown() {
        let secrets = Secrets::of(&json!({"x-setu-secret": true}), &json!("geheimnisvoll"));
        for (secret, spelt) in [("geheimnisvoll", 13), ("%67eheimnisvol%6c", 17)] {
            for after in SHOWN_BYTES - spelt - 1..=SHOWN_BYTES + 1 {
                let capture = Capture::new(secrets.longest());
                for text in [&"x".repeat(3 * SHOWN_BYTES), secret, &"y".repeat(after)] {
                    capture.push(text.as_bytes());
                }
                let shown = capture.take(&secrets);
                let rest = shown.trim_start_matches('x').trim_end_matches('y');
                assert!(rest.is_empty() || rest == "***", "{after}: {rest}");
                assert!(
                    shown.len() <= SHOWN_BYTES + 3 && shown.len() + spelt >= SHOWN_BYTES,
                    "{after}"
                );
            }
        }
    }
}
