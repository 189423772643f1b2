//! A few commands to a private Redis, spoken by hand: this room must not know the Redis client that the product uses, and a test
//! that looks at a server from outside should not share its faults either.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::EmbeddedError;

/// Longest wait for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// An answer of Redis (RESP2).
#[derive(Clone, Debug, PartialEq)]
pub enum WireReply {
    /// Nothing.
    Nil,
    /// An integer.
    Int(i64),
    /// A string.
    Text(String),
    /// A refusal of the server.
    Error(String),
    /// A list.
    List(Vec<WireReply>),
}

impl WireReply {
    /// The text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items; empty unless it is a list.
    #[must_use]
    pub fn items(&self) -> &[WireReply] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    /// Connects to a loopback port and proves the password.
    ///
    /// # Errors
    /// When nobody answers there, or another than who has that password.
    pub async fn connect(port: u16, password: &str) -> Result<Self, EmbeddedError> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.map_err(EmbeddedError::io("connecting to redis"))?;
        let mut wire = Self { stream: BufReader::new(stream) };
        wire.expect_ok(&["AUTH", password]).await?;
        Ok(wire)
    }

    /// Sends one command and reads its answer.
    ///
    /// # Errors
    /// When the connection breaks or no answer comes; a refusal of the server is an answer.
    pub async fn command(&mut self, words: &[&str]) -> Result<WireReply, EmbeddedError> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        let exchange = async {
            self.stream.get_mut().write_all(&bytes).await?;
            self.read().await
        };
        let answered = tokio::time::timeout(ANSWER_WITHIN, exchange).await;
        answered.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(EmbeddedError::io("talking to redis"))
    }

    /// Sends a command that is answered `OK`.
    ///
    /// # Errors
    /// When it is answered otherwise.
    pub async fn expect_ok(&mut self, words: &[&str]) -> Result<(), EmbeddedError> {
        match self.command(words).await? {
            WireReply::Text(text) if text == "OK" => Ok(()),
            other => Err(EmbeddedError::Refused { server: "redis", answer: format!("{other:?} to {}", words[0]) }),
        }
    }

    async fn read(&mut self) -> std::io::Result<WireReply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).unwrap_or(("", ""));
        let unreadable = || std::io::Error::other(format!("not an answer: {line}"));
        let number = || rest.parse::<i64>().map_err(|_| unreadable());
        Ok(match kind {
            "+" => WireReply::Text(rest.to_owned()),
            "-" => WireReply::Error(rest.to_owned()),
            ":" => WireReply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => WireReply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes).await?;
                    bytes.truncate(length);
                    WireReply::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => WireReply::Nil,
                Ok(length) => {
                    let mut items = Vec::with_capacity(length.min(1024));
                    for _ in 0..length {
                        items.push(Box::pin(self.read()).await?);
                    }
                    WireReply::List(items)
                }
            },
            _ => return Err(unreadable()),
        })
    }
}
