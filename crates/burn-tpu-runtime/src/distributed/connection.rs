//! A connection to a server of Redis's protocol, from an address as `BURN_TPU_STORE` has it.

use super::resp::{self, Reply};
use std::io::{BufReader, Error, ErrorKind, Result};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The port of a Redis server whose address names none.
const PORT: &str = "6379";

/// A connection on which one command runs at a time.
pub(super) struct Connection(BufReader<TcpStream>);

/// A server's address: `host:port`, or `redis://user:password@host:port/db`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// `host:port`.
    host: String,
    /// The user, if one is named, and the password.
    login: Vec<String>,
    database: Option<String>,
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        let rest = match text.split_once("://") {
            None | Some(("redis", _)) => text.strip_prefix("redis://").unwrap_or(text),
            Some((scheme, _)) => return Err(format!("`{scheme}://` is not supported, only `redis://`")),
        };
        let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (host, database) = place.split_once('/').unwrap_or((place, ""));
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let login = match login.split_once(':') {
            Some((user, password)) => {
                [user, password].into_iter().filter(|word| !word.is_empty()).map(decoded).collect()
            }
            None => Vec::new(),
        };
        Ok(Self {
            host: if has_port { host.into() } else { format!("{host}:{PORT}") },
            login,
            database: Some(database.to_owned()).filter(|database| !database.is_empty()),
        })
    }
}

/// Returns a part of a URL without its escapes, such as `%40`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = tail.get(..2).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        match escaped.filter(|_| *first == b'%') {
            Some(byte) => (bytes.push(byte), rest = &tail[2..]),
            None => (bytes.push(*first), rest = tail),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Connection {
    /// Connects, and logs in if the address says so.
    ///
    /// # Errors
    /// The system's, and the server's if it refuses the password or the database.
    pub(super) fn open(address: &Address, connect: Duration, answer: Duration) -> Result<Self> {
        let mut failed = Error::new(ErrorKind::NotFound, format!("{} has no address", address.host));
        for place in address.host.to_socket_addrs()? {
            match TcpStream::connect_timeout(&place, connect) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(answer))?;
                    stream.set_write_timeout(Some(answer))?;
                    return Self(BufReader::new(stream)).logged_in(address);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn logged_in(mut self, address: &Address) -> Result<Self> {
        if !address.login.is_empty() {
            let words = address.login.iter().map(String::as_bytes);
            self.run(&std::iter::once(&b"AUTH"[..]).chain(words).collect::<Vec<_>>())?;
        }
        if let Some(database) = &address.database {
            self.run(&[b"SELECT", database.as_bytes()])?;
        }
        Ok(self)
    }

    /// Runs a command and returns its value, if it has one.
    ///
    /// # Errors
    /// The system's, and the server's message if it refuses the command.
    pub(super) fn run(&mut self, words: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        resp::send(self.0.get_mut(), words)?;
        match resp::reply(&mut self.0)? {
            Reply::Value(value) => Ok(Some(value)),
            Reply::Done | Reply::NoValue => Ok(None),
            Reply::Refused(reason) => Err(Error::other(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn address(host: &str, login: &[&str], database: Option<&str>) -> Address {
        let login = login.iter().map(ToString::to_string).collect();
        Address { host: host.into(), login, database: database.map(Into::into) }
    }

    #[test]
    fn addresses_are_parsed() {
        let cases = [
            ("10.0.0.1:99", address("10.0.0.1:99", &[], None)),
            ("redis://host", address("host:6379", &[], None)),
            ("redis://[::1]/3", address("[::1]:6379", &[], Some("3"))),
            ("redis://user:p@s%40s@host:1/0", address("host:1", &["user", "p@s@s"], Some("0"))),
            ("redis://:secret@host:1/", address("host:1", &["secret"], None)),
        ];
        for (text, parsed) in cases {
            assert_eq!(Address::parse(text), Ok(parsed), "{text}");
        }
        assert!(Address::parse("rediss://host").unwrap_err().contains("rediss://"));
    }

    #[test]
    fn a_login_and_a_database_are_sent_before_the_first_command() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://me:word@{}/7", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut seen = Vec::new();
            for reply in [Reply::Done, Reply::Refused("no such database".into())] {
                seen.push(resp::command(&mut reader).unwrap());
                resp::answer(&mut stream, &reply).unwrap();
            }
            seen
        });
        let long = Duration::from_secs(60);
        let refused = Connection::open(&Address::parse(&url).unwrap(), long, long).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains("no such database"), "{refused}");
        let seen = server.join().unwrap();
        assert_eq!(seen[0], [&b"AUTH"[..], b"me", b"word"]);
        assert_eq!(seen[1], [&b"SELECT"[..], b"7"]);
    }
}
