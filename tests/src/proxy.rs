//! A proxy between an engine and its server, for faults of the network.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// A proxy on a port of 127.0.0.1; ends with all its connections when it drops.
#[derive(Debug)]
pub struct Proxy {
    options: PgConnectOptions,
    control: Arc<Control>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Control {
    refusing: AtomicBool,
    attempts: AtomicUsize,
    /// Told when every connection is to be cut.
    cut: Notify,
    /// The statement whose next answer is to be lost.
    losing: Mutex<Option<&'static str>>,
    lost: AtomicUsize,
}

/// Where the server is.
#[derive(Debug, Clone)]
enum Address {
    Socket(PathBuf),
    Host(String, u16),
}

impl Proxy {
    /// A proxy to the database with these options.
    ///
    /// # Errors
    ///
    /// No port is free.
    ///
    /// # Panics
    ///
    /// When the options are no URL of a server.
    pub async fn start(database: &PgConnectOptions) -> io::Result<Self> {
        let port = database.get_port();
        let address = match database.get_socket() {
            Some(directory) => Address::Socket(directory.join(format!(".s.PGSQL.{port}"))),
            None => Address::Host(database.get_host().to_owned(), port),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut url = database.to_url_lossy();
        url.set_host(Some("127.0.0.1")).expect("a URL with a host");
        url.set_port(Some(listener.local_addr()?.port())).expect("a URL with a port");
        // Encrypted, we could not see what passes.
        url.set_query(Some("sslmode=disable"));
        let options = url.as_str().parse().expect("still a URL of a database");
        let control = Arc::new(Control::default());
        let accepting = tokio::spawn(accept(listener, address, Arc::clone(&control)));
        Ok(Self { options, control, accepting })
    }

    /// How to connect to the database through the proxy.
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        self.options.to_url_lossy().to_string()
    }

    /// How many times somebody connected, or tried to.
    pub fn attempts(&self) -> usize {
        self.control.attempts.load(Ordering::SeqCst)
    }

    /// Cuts all connections, and from now on every new one at once.
    pub fn refuse(&self) {
        self.control.refusing.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Lets connections through again.
    pub fn admit(&self) {
        self.control.refusing.store(false, Ordering::SeqCst);
    }

    /// Cuts all connections; new ones are let through.
    pub fn cut(&self) {
        self.control.cut.notify_waiters();
    }

    /// The next time that the engine's statement of this name runs, or an order of this very text (`COMMIT`), the server's
    /// answer is lost and the connection cut after it.
    pub fn lose_answer_of(&self, statement: &'static str) {
        *self.control.losing.lock().unwrap_or_else(PoisonError::into_inner) = Some(statement);
    }

    /// How many answers were lost so far.
    pub fn lost_answers(&self) -> usize {
        self.control.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.refuse();
    }
}

async fn accept(listener: TcpListener, address: Address, control: Arc<Control>) {
    while let Ok((client, _)) = listener.accept().await {
        control.attempts.fetch_add(1, Ordering::SeqCst);
        if control.refusing.load(Ordering::SeqCst) {
            continue;
        }
        let (address, control) = (address.clone(), Arc::clone(&control));
        tokio::spawn(async move {
            let cut = control.cut.notified();
            tokio::pin!(cut);
            cut.as_mut().enable();
            let pass = async {
                match address {
                    Address::Socket(path) => pass(client, UnixStream::connect(path).await?, &control).await,
                    Address::Host(host, port) => {
                        pass(client, TcpStream::connect((host, port)).await?, &control).await
                    }
                }
            };
            // However it ends, both ends are closed.
            tokio::select! {
                _ = pass => {}
                () = cut => {}
            }
        });
    }
}

async fn pass(client: TcpStream, server: impl AsyncRead + AsyncWrite, control: &Control) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let losing = AtomicBool::new(false);
    let asking = async {
        let mut frames = Frames { buffer: Vec::new(), started: false };
        let mut statements = HashMap::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let length = from_client.read(&mut chunk).await?;
            if length == 0 {
                return to_server.shutdown().await;
            }
            frames.buffer.extend_from_slice(&chunk[..length]);
            while let Some((tag, body)) = frames.next() {
                if is_to_be_lost(tag, &body, &mut statements, control) {
                    losing.store(true, Ordering::SeqCst);
                }
            }
            to_server.write_all(&chunk[..length]).await?;
        }
    };
    let answering = async {
        let mut frames = Frames { buffer: Vec::new(), started: true };
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let length = from_server.read(&mut chunk).await?;
            if length == 0 {
                return to_client.shutdown().await;
            }
            if !losing.load(Ordering::SeqCst) {
                to_client.write_all(&chunk[..length]).await?;
                continue;
            }
            frames.buffer.extend_from_slice(&chunk[..length]);
            while let Some((tag, _)) = frames.next() {
                // The server is ready for the next statement: this one is committed.
                if tag == b'Z' {
                    control.lost.fetch_add(1, Ordering::SeqCst);
                    return Ok(());
                }
            }
        }
    };
    // One end that closes closes the other.
    tokio::select! {
        ended = asking => ended,
        ended = answering => ended,
    }
}

/// Notes which prepared statements are whose, and says whether this message runs the one that is waited for.
fn is_to_be_lost(tag: u8, body: &[u8], statements: &mut HashMap<Vec<u8>, String>, control: &Control) -> bool {
    let mut texts = body.split(|byte| *byte == 0);
    let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
    match tag {
        b'P' => {
            let text = String::from_utf8_lossy(second);
            if let Some(name) = text.strip_prefix("-- gen-durable: ").and_then(|rest| rest.lines().next()) {
                statements.insert(first.to_vec(), name.to_owned());
            }
            false
        }
        b'B' | b'Q' => {
            let mut losing = control.losing.lock().unwrap_or_else(PoisonError::into_inner);
            let runs = |name: &str| match tag {
                b'Q' => first == name.as_bytes(),
                _ => statements.get(second).is_some_and(|it| it == name),
            };
            let wanted = losing.is_some_and(runs);
            if wanted {
                *losing = None;
            }
            wanted
        }
        _ => false,
    }
}

/// Cuts a stream into the messages of PostgreSQL's protocol.
struct Frames {
    buffer: Vec<u8>,
    /// Whether the first message, which has no tag, is over.
    started: bool,
}

impl Frames {
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let tag_length = usize::from(self.started);
        let length = self.buffer.get(tag_length..tag_length + 4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        if self.buffer.len() < tag_length + length {
            return None;
        }
        let message: Vec<u8> = self.buffer.drain(..tag_length + length).collect();
        let tag = if self.started { message[0] } else { 0 };
        self.started = true;
        Some((tag, message[tag_length + 4..].to_vec()))
    }
}
