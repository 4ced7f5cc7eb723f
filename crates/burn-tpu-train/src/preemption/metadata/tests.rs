//! The metadata server's client against a server on loopback, which answers as a script says.

use super::*;
use crate::preemption::Notice;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, OnceLock};

/// How the server answers a question.
#[derive(Clone, Copy)]
enum Reply {
    /// With a value and its version.
    Value(&'static str, &'static str),
    /// With these bytes.
    Bytes(&'static str),
    /// Not at all, until the client closes the connection.
    Nothing,
}

use Reply::{Bytes, Nothing, Value};

/// A server that gives each question its reply, and then refuses connections.
struct Server {
    address: String,
    /// The lines of each question.
    questions: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Server {
    fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let questions = Arc::<Mutex<Vec<Vec<String>>>>::default();
        let (asked, replies) = (Arc::clone(&questions), Vec::from_iter(replies));
        std::thread::spawn(move || {
            for (reply, stream) in replies.into_iter().zip(listener.incoming()) {
                let mut stream = stream.unwrap();
                asked.lock().unwrap().push(question(&stream));
                reply.write(&mut stream);
            }
        });
        Self { address, questions }
    }

    fn questions(&self) -> Vec<Vec<String>> {
        self.questions.lock().unwrap().clone()
    }
}

fn question(stream: &TcpStream) -> Vec<String> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).collect()
}

impl Reply {
    fn write(self, stream: &mut TcpStream) {
        let text = match self {
            Value(value, etag) => format!(
                "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: {etag}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{value}",
                value.len()
            ),
            Bytes(bytes) => bytes.to_owned(),
            // It ends when the client gives up.
            Nothing => return drop(std::io::Read::read(stream, &mut [0])),
        };
        // The client may have closed the connection.
        stream.write_all(text.as_bytes()).ok();
    }
}

/// Longer than any answer takes; and short, for answers that never come.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(500);

/// Listens to a server until the listener ends by itself, and returns what was heard. An answer is waited for so long.
fn listen(address: &str, key: Key, limit: Duration) -> Option<Notice> {
    let heard = Arc::new(Heard { notice: OnceLock::new(), first_signal: OnceLock::new(), together: None });
    let watcher = Watcher::new(address, key, true, &heard);
    let agent = agent(limit);
    Watcher { agent, pause: Duration::from_millis(1), ..watcher }.run();
    heard.notice.get().cloned()
}

fn cause(server: &Server, key: Key) -> Option<Cause> {
    listen(&server.address, key, LONG).map(|notice| notice.cause)
}

#[test]
fn a_machine_that_is_preempted_already_is_heard_at_once() {
    let server = Server::start([Value("TRUE\n", "a")]);
    assert_eq!(cause(&server, Key::Preempted), Some(Cause::Preempted));
    let question = &server.questions()[0];
    assert_eq!(question[0], "GET /computeMetadata/v1/instance/preempted HTTP/1.1");
    assert!(question.iter().any(|line| line.eq_ignore_ascii_case("metadata-flavor: google")), "{question:?}");
}

#[test]
fn a_later_change_is_waited_for_by_its_version() {
    let server = Server::start([Value("FALSE", "a"), Value("FALSE", "a"), Value("TRUE", "b")]);
    assert_eq!(cause(&server, Key::Preempted), Some(Cause::Preempted));
    let waiting = "GET /computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=60&last_etag=a HTTP/1.1";
    let lines: Vec<_> = server.questions().iter().map(|question| question[0].clone()).collect();
    assert_eq!(lines[1..], [waiting, waiting]);
}

#[test]
fn only_maintenance_that_ends_the_machine_stops_a_run() {
    let migrated = Value("MIGRATE_ON_HOST_MAINTENANCE", "b");
    let server =
        Server::start([Value("NONE", "a"), migrated, Value("NONE", "c"), Value("TERMINATE_ON_HOST_MAINTENANCE", "d")]);
    let event = "TERMINATE_ON_HOST_MAINTENANCE".to_owned();
    assert_eq!(cause(&server, Key::Maintenance), Some(Cause::Maintenance { event }));
    assert_eq!(server.questions().len(), 4);
    assert!(server.questions()[0][0].contains("/instance/maintenance-event "));
}

#[test]
fn a_value_without_known_meaning_is_ignored() {
    let server = Server::start([Value("PERHAPS", "a"), Value("true", "b"), Value("TRUE", "c")]);
    assert_eq!(cause(&server, Key::Preempted), Some(Cause::Preempted));
    assert_eq!(server.questions().len(), 3);
}

#[test]
fn a_server_that_is_no_metadata_server_is_asked_once() {
    let page = Bytes("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nTRUE");
    let unknown = Bytes("HTTP/1.1 404 Not Found\r\nMetadata-Flavor: Google\r\nContent-Length: 0\r\n\r\n");
    let elsewhere = Bytes("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
    for reply in [page, unknown, elsewhere] {
        let server = Server::start([reply, Value("TRUE", "a")]);
        assert_eq!(cause(&server, Key::Preempted), None);
        assert_eq!(server.questions().len(), 1);
    }
}

#[test]
fn a_server_that_never_answers_well_is_given_up() {
    for reply in [Bytes("\0garbage\r\n\r\n"), Bytes(""), Nothing] {
        let server = Server::start([reply; TRIES as usize + 1]);
        assert_eq!(listen(&server.address, Key::Preempted, SHORT), None);
        assert_eq!(server.questions().len(), TRIES as usize);
    }
}

#[test]
fn a_server_that_is_absent_is_given_up() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [format!("http://{closed}"), "http://metadata.invalid".into(), "http://no address".into()] {
        assert_eq!(listen(&address, Key::Preempted, LONG), None);
    }
}

#[test]
fn a_server_that_answered_once_may_fail_for_a_while() {
    let failing = Bytes("HTTP/1.1 503 Unavailable\r\nMetadata-Flavor: Google\r\nContent-Length: 0\r\n\r\n");
    let replies = [Value("FALSE", "a"), failing, Nothing, Bytes("\0"), failing, Nothing, failing, Value("TRUE", "b")];
    let server = Server::start(replies);
    assert!(listen(&server.address, Key::Preempted, SHORT).is_some());
    assert_eq!(server.questions().len(), 8);
}

#[test]
fn nobody_is_asked_when_nobody_listens() {
    let server = Server::start([Value("FALSE", "a"), Value("TRUE", "b")]);
    let heard = Arc::new(Heard { notice: OnceLock::new(), first_signal: OnceLock::new(), together: None });
    let watcher = Watcher::new(&server.address, Key::Preempted, true, &heard);
    drop(heard);
    watcher.run();
    assert!(server.questions().is_empty());
}

#[test]
fn the_variable_and_the_option_name_the_server() {
    let usual = |variable: &str| MetadataServer::Usual.base(Some(variable.into()));
    assert_eq!(usual("host:8080"), Some(("http://host:8080".into(), true)));
    assert_eq!(usual(""), Some((GOOGLE.into(), false)));
    assert_eq!(MetadataServer::None.base(Some("host".into())), None);
    let named = MetadataServer::At("http://127.0.0.1:1/".into());
    assert_eq!(named.base(Some("host".into())), Some(("http://127.0.0.1:1".into(), true)));
}
