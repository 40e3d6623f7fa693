//! A small runtime of its own for the SDK's futures, so that callers may block wherever they are.

use std::future::Future;
use std::io;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Requests spend their time waiting; what they compute is a hash of each body.
const WORKERS: usize = 2;

/// Runs futures for callers that block.
pub(super) struct Engine {
    /// There until the engine is dropped.
    runtime: Option<Runtime>,
}

impl Engine {
    pub(super) fn start() -> io::Result<Engine> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("setu-s3")
            .enable_all()
            .build()?;
        Ok(Engine {
            runtime: Some(runtime),
        })
    }

    /// Waits for a future. Other than the runtime's own `block_on` it may be called from anywhere, threads of another
    /// runtime included.
    pub(super) fn wait<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            // Its receiver waits below.
            let _ = sender.send(future.await);
        });
        match receiver.recv() {
            Ok(output) => output,
            Err(_) => panic!("a request to the blob store panicked; its message stands above"),
        }
    }

    /// Lets a future run on its own.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match &self.runtime {
            Some(runtime) => runtime.spawn(future),
            None => unreachable!("the runtime is taken when the engine is dropped"),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropping a runtime waits for its threads, which panics inside another runtime.
            runtime.shutdown_background();
        }
    }
}
