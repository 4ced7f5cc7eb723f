//! The metadata server of a machine in Google's cloud, which says that the machine is preempted or that its host is
//! maintained.
//!
//! One thread asks for each of the two values. The server answers a first question at once, and a later one when the value
//! changes. Where no server answers, as outside of the cloud, the threads end.
//!
//! `MIGRATE_ON_HOST_MAINTENANCE` is no reason to stop: the machine goes on elsewhere, and TPU machines are never migrated.
//! Maintenance that is announced for a later day (`upcoming-maintenance`) is none either.

use super::{Cause, Heard};
use std::sync::{Arc, Weak};
use std::time::Duration;
use ureq::Agent;
use ureq::http::{HeaderMap, Response, StatusCode};

/// The variable that Google's own libraries read.
const VARIABLE: &str = "GCE_METADATA_HOST";
const GOOGLE: &str = "http://metadata.google.internal";

/// The header of every question, and of every answer of a real server.
const FLAVOR: (&str, &str) = ("Metadata-Flavor", "Google");

/// How long the server may wait for a change before it answers with the value as it is.
const CHANGE: Duration = Duration::from_secs(60);
/// How much later an answer is no longer waited for.
const LATENESS: Duration = Duration::from_secs(10);
/// The pause after an answer without news and after a first failure. It doubles with each further failure.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A server that has not answered after as many questions is none.
const TRIES: u32 = 5;
/// The longest value that is read, in bytes.
const LONGEST_VALUE: u64 = 1024;

/// Which server is asked.
#[derive(Clone, Debug, Default)]
pub(super) enum MetadataServer {
    /// The one that the environment names, or Google's.
    #[default]
    Usual,
    At(String),
    None,
}

/// A value of the server.
#[derive(Clone, Copy, Debug)]
enum Key {
    Preempted,
    Maintenance,
}

/// The thread that asks for a value.
struct Watcher {
    agent: Agent,
    url: String,
    key: Key,
    /// Whether the user named the server, so that its absence is a mistake.
    is_named: bool,
    change: Duration,
    pause: Duration,
    heard: Weak<Heard>,
}

/// A value of the server, and the name of its version.
struct Answer {
    value: String,
    etag: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Unanswered(#[from] ureq::Error),
    #[error("it answers with status {0}")]
    Status(StatusCode),
    #[error("its answer lacks the header `Metadata-Flavor: Google`")]
    Stranger,
}

/// Starts a thread for each value.
pub(super) fn watch(server: &MetadataServer, heard: &Arc<Heard>) {
    let Some((base, is_named)) = server.base(std::env::var(VARIABLE).ok()) else { return };
    for key in [Key::Preempted, Key::Maintenance] {
        let watcher = Watcher::new(&base, key, is_named, heard);
        let thread = std::thread::Builder::new().name("burn-tpu-metadata".into()).spawn(move || watcher.run());
        if let Err(error) = thread {
            tracing::warn!(%error, "no thread asks the metadata server: preemption is heard by signals alone");
        }
    }
}

impl MetadataServer {
    /// Returns the server's address, and whether the user named it.
    fn base(&self, variable: Option<String>) -> Option<(String, bool)> {
        match (self, variable.filter(|host| !host.is_empty())) {
            (Self::None, _) => None,
            (Self::At(address), _) => Some((address.trim_end_matches('/').to_owned(), true)),
            (Self::Usual, Some(host)) => Some((format!("http://{host}"), true)),
            (Self::Usual, None) => Some((GOOGLE.to_owned(), false)),
        }
    }
}

impl Key {
    fn path(self) -> &'static str {
        match self {
            Key::Preempted => "preempted",
            Key::Maintenance => "maintenance-event",
        }
    }

    /// Returns the reason to stop that a value is, if it is one.
    ///
    /// # Errors
    /// A value that the server is not known to have.
    fn cause(self, value: &str) -> Result<Option<Cause>, ()> {
        match (self, value) {
            (Key::Preempted, "TRUE") => Ok(Some(Cause::Preempted)),
            (Key::Preempted, "FALSE") => Ok(None),
            (Key::Maintenance, "NONE" | "MIGRATE_ON_HOST_MAINTENANCE") => Ok(None),
            (Key::Maintenance, "TERMINATE_ON_HOST_MAINTENANCE") => Ok(Some(Cause::Maintenance { event: value.into() })),
            _ => Err(()),
        }
    }
}

impl Watcher {
    fn new(base: &str, key: Key, is_named: bool, heard: &Arc<Heard>) -> Self {
        let url = format!("{base}/computeMetadata/v1/instance/{}", key.path());
        Self {
            agent: agent(CHANGE + LATENESS),
            url,
            key,
            is_named,
            change: CHANGE,
            pause: PAUSE,
            heard: Arc::downgrade(heard),
        }
    }

    /// Asks until the value is a reason to stop, there is no server, or nobody listens any more.
    fn run(self) {
        let (mut known, mut failures, mut has_answered): (Option<Answer>, u32, bool) = (None, 0, false);
        while self.heard.strong_count() > 0 {
            match self.ask(known.as_ref().and_then(|known| known.etag.as_deref())) {
                Ok(answer) => {
                    (failures, has_answered) = (0, true);
                    let is_news = known.as_ref().is_none_or(|known| known.value != answer.value);
                    if is_news && self.tell(&answer.value) {
                        return;
                    }
                    known = Some(answer);
                    std::thread::sleep(self.pause);
                }
                Err(failure) => {
                    failures += 1;
                    if self.gives_up(&failure, failures, has_answered) {
                        return;
                    }
                    std::thread::sleep((self.pause * 2u32.saturating_pow(failures - 1)).min(LONGEST_PAUSE));
                }
            }
        }
    }

    /// Asks for the value: for a change of it, if an earlier version is known.
    fn ask(&self, etag: Option<&str>) -> Result<Answer, Failure> {
        let mut request = self.agent.get(&self.url).header(FLAVOR.0, FLAVOR.1);
        if let Some(etag) = etag {
            let seconds = self.change.as_secs().to_string();
            request = request.query("wait_for_change", "true").query("timeout_sec", seconds).query("last_etag", etag);
        }
        let mut response = request.call()?;
        check(&response)?;
        let value = response.body_mut().with_config().limit(LONGEST_VALUE).read_to_string()?;
        Ok(Answer { value: value.trim().to_owned(), etag: header(response.headers(), "etag") })
    }

    /// Passes a value on; returns whether it is a reason to stop.
    fn tell(&self, value: &str) -> bool {
        tracing::debug!(url = self.url, value, "the metadata server answers");
        match (self.key.cause(value), self.heard.upgrade()) {
            (Ok(Some(cause)), Some(heard)) => {
                heard.hear(cause);
                true
            }
            (Ok(_), _) => false,
            (Err(()), _) => {
                tracing::warn!(
                    url = self.url,
                    value,
                    "the metadata server has a value of no known meaning, which is ignored"
                );
                false
            }
        }
    }

    /// Returns whether there is no use in asking again, and logs why. A server that has answered may be away for a while.
    fn gives_up(&self, failure: &Failure, failures: u32, has_answered: bool) -> bool {
        let url = &self.url;
        let is_refused = matches!(failure, Failure::Stranger) || is_client_error(failure);
        if !is_refused && (has_answered || failures < TRIES) {
            tracing::debug!(url, %failure, failures, "the metadata server does not answer");
            return false;
        }
        if self.is_named {
            tracing::warn!(url, %failure, "there is no metadata server: preemption is heard by signals alone");
        } else {
            tracing::debug!(url, %failure, "there is no metadata server: preemption is heard by signals alone");
        }
        true
    }
}

/// Returns a client that reaches the server directly, since a proxy has metadata of its own.
fn agent(limit: Duration) -> Agent {
    let config = Agent::config_builder().proxy(None).timeout_global(Some(limit)).max_redirects(0);
    config.http_status_as_error(false).build().into()
}

/// Checks that a metadata server answers, and not what a network answers for a name that does not exist.
fn check<T>(response: &Response<T>) -> Result<(), Failure> {
    if header(response.headers(), FLAVOR.0).as_deref() != Some(FLAVOR.1) {
        return Err(Failure::Stranger);
    }
    if response.status() == StatusCode::OK { Ok(()) } else { Err(Failure::Status(response.status())) }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn is_client_error(failure: &Failure) -> bool {
    matches!(failure, Failure::Status(status) if status.is_client_error())
}

#[cfg(test)]
mod tests;
