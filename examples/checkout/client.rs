//! Just enough of HTTP to play the customer and the bank.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Status and body of an answer.
pub(crate) type Answer = (u16, String);

pub(crate) async fn get(server: SocketAddr, path: &str) -> io::Result<Answer> {
    ask(server, &format!("GET {path}"), "").await
}

pub(crate) async fn post(server: SocketAddr, path: &str, body: &Value) -> io::Result<Answer> {
    ask(server, &format!("POST {path}"), &body.to_string()).await
}

async fn ask(server: SocketAddr, what: &str, body: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!(
        "{what} HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let unexpected = || io::Error::new(io::ErrorKind::UnexpectedEof, "the server did not finish its answer");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(unexpected)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(unexpected)?;
    Ok((status, body.to_owned()))
}
