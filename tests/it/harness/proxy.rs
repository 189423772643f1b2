//! Stands between the product and a store, and does harm when it is told to: holds back, cuts, or lets a piece of work be done and loses the
//! answer. What it looks for is a run of bytes in what is asked, such as the SHA of a script or the words of a statement.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a connection that is lost to its client stays open to the server, so that what was asked is done.
const DONE_WITHIN: Duration = Duration::from_secs(5);

/// When a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The server never hears what was asked.
    Before,
    /// The server does it, and its answer is lost.
    After,
}

#[derive(Debug)]
struct Armed {
    needle: Vec<u8>,
    /// What is done to the next ones, in this order.
    strikes: VecDeque<When>,
}

/// How an answer is held back.
#[derive(Debug)]
struct Hold {
    needle: Vec<u8>,
    came: watch::Sender<bool>,
    /// Closed when it may go.
    released: watch::Receiver<()>,
}

/// An answer that the server has given and that does not reach who asked, until this is dropped.
#[derive(Debug)]
pub struct HeldAnswer {
    came: watch::Receiver<bool>,
    _release: watch::Sender<()>,
}

impl HeldAnswer {
    /// Waits until the server has answered.
    pub async fn came(&mut self) {
        self.came.wait_for(|came| *came).await.unwrap();
    }
}

#[derive(Debug, Default)]
struct Faults {
    armed: Mutex<Option<Armed>>,
    hold: Mutex<Option<Hold>>,
    fired: AtomicUsize,
    delay: Mutex<Duration>,
}

impl Faults {
    /// What is to be done to a connection on which these bytes are asked.
    fn strike(&self, seen: &[u8]) -> Option<When> {
        let mut armed = self.armed.lock().unwrap();
        let one = armed.as_mut()?;
        if !seen.windows(one.needle.len()).any(|window| window == one.needle) {
            return None;
        }
        let when = one.strikes.pop_front();
        if one.strikes.is_empty() {
            *armed = None;
        }
        self.fired.fetch_add(1, Ordering::SeqCst);
        when
    }

    /// How the answer to these bytes is to be held back, if it is.
    fn hold(&self, seen: &[u8]) -> Option<Hold> {
        self.hold.lock().unwrap().take_if(|hold| seen.windows(hold.needle.len()).any(|window| window == hold.needle))
    }
}

/// A proxy on a port of its own.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    /// The server's port.
    server: Arc<AtomicU16>,
    faults: Arc<Faults>,
    cut: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Before the server on this port.
    pub async fn before(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::<Faults>::default();
        let (cut, cuts) = watch::channel(false);
        let at_work = Arc::clone(&faults);
        let server = Arc::new(AtomicU16::new(server_port));
        let leads_to = Arc::clone(&server);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (faults, cuts, server_port) = (Arc::clone(&at_work), cuts.clone(), leads_to.load(Ordering::SeqCst));
                tokio::spawn(async move {
                    if !*cuts.borrow() {
                        serve(client, server_port, &faults, cuts).await;
                    }
                });
            }
        });
        Self { port, server, faults, cut, task }
    }

    /// The URL of a store, led through this proxy.
    pub fn url(&self, url: &str) -> String {
        let mut url = url::Url::parse(url).unwrap();
        url.set_port(Some(self.port)).unwrap();
        url.into()
    }

    /// Strikes the next connections on which these bytes are asked, one for each of `strikes`.
    pub fn arm(&self, needle: &[u8], strikes: &[When]) {
        self.faults.fired.store(0, Ordering::SeqCst);
        *self.faults.armed.lock().unwrap() = Some(Armed { needle: needle.to_vec(), strikes: strikes.iter().copied().collect() });
    }

    /// Strikes no more, and says how often it did since it was armed.
    pub fn disarm(&self) -> usize {
        *self.faults.armed.lock().unwrap() = None;
        self.fired()
    }

    /// How often it struck since it was armed.
    pub fn fired(&self) -> usize {
        self.faults.fired.load(Ordering::SeqCst)
    }

    /// Waits so long at most until it has struck as often as it was told to; says whether it has.
    pub async fn spent(&self, within: Duration) -> bool {
        let begun = std::time::Instant::now();
        while self.faults.armed.lock().unwrap().is_some() {
            if begun.elapsed() >= within {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Holds back the answer to the next call that asks with these bytes, and what comes after it on the same connection.
    pub fn hold(&self, needle: &[u8]) -> HeldAnswer {
        let ((came, has_come), (release, released)) = (watch::channel(false), watch::channel(()));
        *self.faults.hold.lock().unwrap() = Some(Hold { needle: needle.to_vec(), came, released });
        HeldAnswer { came: has_come, _release: release }
    }

    /// From now on everything that is asked comes so much later.
    pub fn delay(&self, by: Duration) {
        *self.faults.delay.lock().unwrap() = by;
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, server_port: u16) {
        self.server.store(server_port, Ordering::SeqCst);
    }

    /// Cuts every connection and takes no new one.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Takes connections again.
    pub fn restore(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(client: TcpStream, server_port: u16, faults: &Faults, mut cuts: watch::Receiver<bool>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.into_split(), server.into_split());
    let held = Mutex::new(None);
    let struck = tokio::select! {
        struck = ask(&mut from_client, &mut to_server, faults, &held) => struck,
        () = answer(&mut from_server, &mut to_client, &held) => None,
        _ = cuts.wait_for(|cut| *cut) => None,
    };
    // The client is told that the connection is gone. What the server was asked it does: a socket that is dropped with something unread
    // in it takes back what it was asked.
    drop((from_client, to_client));
    if struck == Some(When::After) {
        let _ = tokio::time::timeout(DONE_WITHIN, tokio::io::copy(&mut from_server, &mut tokio::io::sink())).await;
    }
}

async fn answer(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, held: &Mutex<Option<Hold>>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let hold = held.lock().unwrap().take();
        if let Some(mut hold) = hold {
            hold.came.send_replace(true);
            while hold.released.changed().await.is_ok() {}
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn ask(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, faults: &Faults, held: &Mutex<Option<Hold>>) -> Option<When> {
    let mut buffer = vec![0; 65_536];
    let mut tail: Vec<u8> = Vec::new();
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let delay = *faults.delay.lock().unwrap();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        // What is looked for may have come in two pieces.
        tail.extend_from_slice(&buffer[..length]);
        if let Some(hold) = faults.hold(&tail) {
            *held.lock().unwrap() = Some(hold);
        }
        let strike = faults.strike(&tail);
        if strike == Some(When::Before) {
            return strike;
        }
        if to.write_all(&buffer[..length]).await.is_err() || strike.is_some() {
            return strike;
        }
        tail.drain(..tail.len().saturating_sub(128));
    }
    None
}
