//! A client of HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Gets a page, and returns the answer as it came.
pub fn get(address: SocketAddr, path: &str) -> String {
    request(TcpStream::connect(address).unwrap(), &format!("GET {path}"), "")
}

/// Sends a request over a connection, and returns the answer as it came.
pub fn request(mut stream: impl Read + Write, request: &str, body: &str) -> String {
    let headers = format!("Host: localhost\r\nConnection: close\r\nContent-Length: {}", body.len());
    // It goes out at once: a server waits for a whole request for a time only.
    stream.write_all(format!("{request} HTTP/1.1\r\n{headers}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
