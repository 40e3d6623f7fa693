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

const KEPT_BYTES: usize = 8 << 10;

/// Takes everything that is written and keeps the end of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Capture(Arc<Mutex<VecDeque<u8>>>);

impl Capture {
    /// What was written since the last call of this, at most its last 8 KiB.
    pub(super) fn take(&self) -> String {
        let bytes: Vec<u8> = std::mem::take(&mut *self.lock()).into();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn push(&self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        let mut kept = self.lock();
        let excess = (kept.len() + bytes.len()).saturating_sub(KEPT_BYTES);
        kept.drain(..excess);
        kept.extend(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn only_the_end_of_a_flood_is_kept() {
        let capture = Capture::default();
        capture.push(b"start");
        for _ in 0..100 {
            capture.push(&[b'x'; 1000]);
        }
        capture.push(b"the end");
        let kept = capture.take();
        assert_eq!(kept.len(), KEPT_BYTES);
        assert!(kept.ends_with("xthe end") && !kept.contains("start"));
        assert_eq!(capture.take(), "");
    }

    #[test]
    fn one_write_beyond_the_whole_capacity_is_cut() {
        let capture = Capture::default();
        capture.push(&[b'y'; 3 * KEPT_BYTES]);
        assert_eq!(capture.take().len(), KEPT_BYTES);
    }
}
