//! A TCP proxy that stops passing data on at a chosen point, or breaks the connections there, so that a test can strike
//! a run exactly in its middle.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Forwards connections to a server on this machine. While stalled, connections stay open and nothing moves.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    valve: Arc<Valve>,
}

/// How many more bytes may pass in each direction, over all connections together.
#[derive(Debug)]
struct Valve {
    left: Mutex<Left>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct Left {
    from_server: u64,
    to_server: u64,
    /// At the limit the connections of that time break, and later ones are not limited.
    breaks: bool,
    /// Counts up when connections break; those of an earlier number are broken.
    generation: u64,
    /// New connections are closed at once.
    refuses: bool,
}

impl Left {
    fn unlimited() -> Self {
        Left {
            from_server: u64::MAX,
            to_server: u64::MAX,
            breaks: false,
            generation: 0,
            refuses: false,
        }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    FromServer,
    ToServer,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 in front of another one, and passes everything.
    pub fn new(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap_or_else(|error| panic!("no port: {error}"));
        let port = listener.local_addr().map(|address| address.port());
        let valve = Arc::new(Valve {
            left: Mutex::new(Left::unlimited()),
            changed: Condvar::new(),
        });
        let shared = Arc::clone(&valve);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.lock().refuses {
                    continue;
                }
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    serve(client, server, &shared);
                }
            }
        });
        Self {
            port: port.unwrap_or_else(|error| panic!("no port: {error}")),
            valve,
        }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stalls once the server has sent this many more bytes.
    pub fn stall_after_receiving(&self, bytes: u64) {
        self.set(|left| left.from_server = bytes);
    }

    /// Stalls once the server was sent this many more bytes.
    pub fn stall_after_sending(&self, bytes: u64) {
        self.set(|left| left.to_server = bytes);
    }

    /// Breaks the connections once the server has sent this many more bytes.
    pub fn break_after_receiving(&self, bytes: u64) {
        self.set(|left| (left.from_server, left.breaks) = (bytes, true));
    }

    /// Breaks the connections once the server was sent this many more bytes.
    pub fn break_after_sending(&self, bytes: u64) {
        self.set(|left| (left.to_server, left.breaks) = (bytes, true));
    }

    /// Closes every new connection at once.
    pub fn refuse(&self) {
        self.set(|left| left.refuses = true);
    }

    /// Passes everything again, also what has waited.
    pub fn open(&self) {
        self.set(|left| {
            *left = Left {
                generation: left.generation,
                ..Left::unlimited()
            };
        });
    }

    /// Whether connections were broken.
    pub fn has_broken(&self) -> bool {
        self.valve.lock().generation > 0
    }

    /// Whether a limit is used up.
    pub fn is_stalled(&self) -> bool {
        let left = self.valve.lock();
        left.from_server == 0 || left.to_server == 0
    }

    fn set(&self, change: impl FnOnce(&mut Left)) {
        change(&mut self.valve.lock());
        self.valve.changed.notify_all();
    }
}

impl Valve {
    fn lock(&self) -> std::sync::MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until some of `wanted` bytes may pass, and says how many; none where the connection, of this generation, is
    /// to break.
    fn take(&self, direction: Direction, wanted: usize, generation: u64) -> usize {
        let mut left = self.lock();
        loop {
            if left.generation != generation {
                return 0;
            }
            let allowed = match direction {
                Direction::FromServer => &mut left.from_server,
                Direction::ToServer => &mut left.to_server,
            };
            if *allowed == u64::MAX {
                return wanted;
            }
            let passed = (*allowed).min(wanted as u64);
            if passed > 0 {
                *allowed -= passed;
                return usize::try_from(passed).unwrap_or(wanted);
            }
            if left.breaks {
                *left = Left {
                    generation: generation + 1,
                    refuses: left.refuses,
                    ..Left::unlimited()
                };
                self.changed.notify_all();
                return 0;
            }
            left = self
                .changed
                .wait(left)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

fn serve(client: TcpStream, server: TcpStream, valve: &Arc<Valve>) {
    let generation = valve.lock().generation;
    let pairs = [
        (client.try_clone(), server.try_clone(), Direction::ToServer),
        (server.try_clone(), client.try_clone(), Direction::FromServer),
    ];
    for (from, to, direction) in pairs {
        let (Ok(from), Ok(to)) = (from, to) else { return };
        let valve = Arc::clone(valve);
        thread::spawn(move || pump(from, to, direction, &valve, generation));
    }
}

/// Copies one direction until either side closes.
fn pump(mut from: TcpStream, mut to: TcpStream, direction: Direction, valve: &Valve, generation: u64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(valve.take(direction, rest.len(), generation));
            if now.is_empty() || to.write_all(now).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
            rest = later;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
