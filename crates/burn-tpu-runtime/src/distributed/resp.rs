//! Redis's protocol (RESP 2), as far as `SET` and `GET` need it: commands are arrays of strings, replies are one value.
//!
//! Owns: the bytes of both directions. May not know: keys, runs, who serves.

use std::io::{BufRead, Error, ErrorKind, Read, Result, Write};

/// A server's answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    Value(Vec<u8>),
    NoValue,
    Refused(String),
}

/// Writes a command with one call, so that it is one packet if it is small.
pub(super) fn send(stream: &mut impl Write, words: &[&[u8]]) -> Result<()> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        push_string(&mut bytes, word);
    }
    stream.write_all(&bytes)
}

/// Reads a command.
pub(super) fn command(stream: &mut impl BufRead) -> Result<Vec<Vec<u8>>> {
    let count: usize = number(&line(stream)?, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(&line(stream)?, b'$')?;
        words.push(string(stream, length)?);
    }
    Ok(words)
}

/// Writes a reply with one call.
pub(super) fn answer(stream: &mut impl Write, reply: &Reply) -> Result<()> {
    let mut bytes = Vec::new();
    match reply {
        Reply::Done => bytes.extend(b"+OK\r\n"),
        Reply::Value(value) => push_string(&mut bytes, value),
        Reply::NoValue => bytes.extend(b"$-1\r\n"),
        Reply::Refused(reason) => bytes.extend(format!("-ERR {reason}\r\n").bytes()),
    }
    stream.write_all(&bytes)
}

/// Reads a reply.
pub(super) fn reply(stream: &mut impl BufRead) -> Result<Reply> {
    let line = line(stream)?;
    match line.first() {
        Some(b'+') => Ok(Reply::Done),
        Some(b'-') => Ok(Reply::Refused(String::from_utf8_lossy(&line[1..]).into_owned())),
        Some(b'$') if line == b"$-1" => Ok(Reply::NoValue),
        _ => string(stream, number(&line, b'$')?).map(Reply::Value),
    }
}

fn push_string(bytes: &mut Vec<u8>, word: &[u8]) {
    bytes.extend(format!("${}\r\n", word.len()).bytes());
    bytes.extend(word);
    bytes.extend(b"\r\n");
}

/// Reads a line without its end.
fn line(stream: &mut impl BufRead) -> Result<Vec<u8>> {
    /// Longer than any length and any server's message.
    const LONGEST: u64 = 1 << 16;
    let mut line = Vec::new();
    stream.take(LONGEST).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if !line.ends_with(b"\r\n") {
        return Err(malformed(&line));
    }
    line.truncate(line.len() - 2);
    Ok(line)
}

/// Returns the number of a line such as `$12`.
fn number(line: &[u8], kind: u8) -> Result<usize> {
    let digits = line.strip_prefix(&[kind]).and_then(|digits| str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| malformed(line))
}

/// Reads a string of this length and its end. The memory grows with what arrives, whatever length was announced.
fn string(stream: &mut impl BufRead, length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes)?;
    let mut end = [0; 2];
    stream.read_exact(&mut end)?;
    if bytes.len() == length && end == *b"\r\n" { Ok(bytes) } else { Err(malformed(&end)) }
}

fn malformed(bytes: &[u8]) -> Error {
    let shown = bytes[..bytes.len().min(64)].escape_ascii();
    Error::new(ErrorKind::InvalidData, format!("this is not Redis's protocol: \"{shown}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        send(&mut bytes, &[b"SET", b"key", b"a\r\n$-1\r\n", b""]).unwrap();
        assert_eq!(bytes, b"*4\r\n$3\r\nSET\r\n$3\r\nkey\r\n$8\r\na\r\n$-1\r\n\r\n$0\r\n\r\n");
        assert_eq!(command(&mut &bytes[..]).unwrap(), [&b"SET"[..], b"key", b"a\r\n$-1\r\n", b""]);
        let replies = [Reply::Done, Reply::NoValue, Reply::Value(b"\r\n".to_vec()), Reply::Value(Vec::new())];
        let mut bytes = Vec::new();
        for reply in &replies {
            answer(&mut bytes, reply).unwrap();
        }
        let mut rest = &bytes[..];
        for expected in replies {
            assert_eq!(reply(&mut rest).unwrap(), expected);
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_refusal_keeps_its_message() {
        assert_eq!(
            reply(&mut &b"-NOAUTH Authentication required.\r\n"[..]).unwrap(),
            Reply::Refused("NOAUTH Authentication required.".into())
        );
    }

    #[test]
    fn other_bytes_are_errors() {
        for bytes in [&b"HTTP/1.1 400\r\n"[..], b"$3\r\nab\r\n", b"$2\r\nabcd", b"$99999999999\r\nx", b"+OK", b""] {
            assert!(reply(&mut &bytes[..]).is_err(), "{}", bytes.escape_ascii());
        }
        for bytes in [&b"*1\r\n"[..], b"*1\r\n:1\r\n", b"GET / HTTP/1.1\r\n", b"*-1\r\n"] {
            assert!(command(&mut &bytes[..]).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
