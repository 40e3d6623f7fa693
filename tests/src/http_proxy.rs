//! An HTTP proxy that does to requests and answers what networks and reverse proxies do.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What happens to requests.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answers that are longer than this break off after so many bytes, `times` times.
    CutAnswers {
        /// How many bytes come through, those of the head included.
        after: usize,
        /// How many answers break off.
        times: usize,
    },
    /// Nothing is asked of the server; every request is answered with this status and no body.
    Answer(u16),
    /// The same for so many requests; later ones come through.
    AnswerTimes {
        /// The status.
        status: u16,
        /// How many requests are answered so.
        times: usize,
    },
    /// The server sees the path without this prefix, which a header tells it, as a reverse proxy does it.
    StripPrefix(&'static str),
    /// The answer to each of the next so many requests whose first line starts so is thrown away after the server
    /// has acted, and the connection closed.
    LoseAnswers {
        /// As in `PUT /`.
        to: &'static str,
        /// How many answers are lost.
        times: usize,
    },
}

/// A proxy on a free port of 127.0.0.1. Each connection carries one request.
#[derive(Debug)]
pub struct HttpProxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    server: u16,
    fault: Mutex<Fault>,
    requests: Mutex<Vec<String>>,
}

impl HttpProxy {
    /// Listens in front of the server on another port.
    pub fn new(server: u16, fault: Fault) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap_or_else(|error| panic!("no port: {error}"));
        let port = listener.local_addr().map(|address| address.port());
        let state = Arc::new(State {
            server,
            fault: Mutex::new(fault),
            requests: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A connection that breaks is the client's to complain about.
                thread::spawn(move || state.serve(client));
            }
        });
        Self {
            port: port.unwrap_or_else(|error| panic!("no port: {error}")),
            state,
        }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on this happens.
    pub fn set(&self, fault: Fault) {
        *lock(&self.state.fault) = fault;
    }

    /// The first lines of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.state.requests).clone()
    }
}

impl State {
    fn serve(&self, mut client: TcpStream) -> Option<()> {
        let (head, rest) = read_head(&mut client)?;
        let line = head.lines().next()?.to_owned();
        lock(&self.requests).push(line.clone());
        let fault = self.next_fault();
        let (mut line, mut headers) = (line, "Connection: close\r\n".to_owned());
        match fault {
            Fault::Answer(status) => {
                let answer =
                    format!("HTTP/1.1 {status} Whatever\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                client.write_all(answer.as_bytes()).ok()?;
                // What the client still sends is read, or the system would throw the answer away.
                client.shutdown(Shutdown::Write).ok()?;
                std::io::copy(&mut client, &mut std::io::sink()).ok()?;
                return None;
            }
            Fault::StripPrefix(prefix) => {
                line = line.replacen(&format!(" {prefix}/"), " /", 1);
                headers += &format!("X-Forwarded-Prefix: {prefix}\r\n");
            }
            Fault::CutAnswers { .. } | Fault::LoseAnswers { .. } | Fault::AnswerTimes { .. } => {}
        }
        let mut server = TcpStream::connect(("127.0.0.1", self.server)).ok()?;
        let others = head.split_once("\r\n")?.1;
        server
            .write_all(format!("{line}\r\n{headers}{others}").as_bytes())
            .ok()?;
        server.write_all(&rest).ok()?;
        let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
        thread::spawn(move || std::io::copy(&mut from, &mut to));
        self.answer(&line, server, &client);
        client.shutdown(Shutdown::Both).ok()
    }

    /// What happens to the next request.
    fn next_fault(&self) -> Fault {
        let mut fault = lock(&self.fault);
        match &mut *fault {
            Fault::AnswerTimes {
                status,
                times: times @ 1..,
            } => {
                *times -= 1;
                Fault::Answer(*status)
            }
            other => other.clone(),
        }
    }

    /// Passes the server's answer on, as far as it gets.
    fn answer(&self, line: &str, server: TcpStream, mut client: &TcpStream) {
        let mut limit = u64::MAX;
        if let Fault::LoseAnswers { to, times: 1.. } = *lock(&self.fault)
            && line.starts_with(to)
        {
            limit = 0;
        }
        if let Fault::CutAnswers { after, times: 1.. } = *lock(&self.fault) {
            limit = after as u64;
        }
        let mut server = server;
        let passed = std::io::copy(&mut Read::by_ref(&mut server).take(limit), &mut client);
        if passed.is_ok_and(|passed| passed < limit) {
            return;
        }
        // The server has more to say. Reading it to the end makes sure that it has done what was asked.
        if std::io::copy(&mut server, &mut std::io::sink()).is_ok_and(|more| more > 0) {
            match &mut *lock(&self.fault) {
                Fault::CutAnswers { times, .. } | Fault::LoseAnswers { times, .. } => {
                    *times = times.saturating_sub(1);
                }
                _ => {}
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads up to the end of the head, and what came with it of the body.
fn read_head(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Some((String::from_utf8(bytes).ok()?, rest));
        }
    }
}
