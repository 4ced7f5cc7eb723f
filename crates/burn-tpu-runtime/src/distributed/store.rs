//! The client of the key-value store that the processes share: any server of Redis's protocol.

use super::connection::{Address, Connection};
use crate::error::{Result, TpuError};
use burn_tpu_pjrt::KeyValueStore;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The time after which a server forgets a value. A run's values are read within minutes; the server may serve later runs.
const KEPT_SECONDS: u64 = 24 * 60 * 60;

/// The pauses between two looks for a value: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// The time limit of one try to connect.
const CONNECT: Duration = Duration::from_secs(5);

/// Values by key, which several processes share. A key is put once.
pub struct Store {
    /// Without the password.
    address: String,
    /// Begins every key, so that runs that share a server do not meet.
    run: String,
    connection: Mutex<Connection>,
}

impl Store {
    /// Connects to a store: `host:port`, or `redis://user:password@host:port/db#run`. The name of the run keeps its values
    /// from those of other runs on the same server. Tries until the time limit, since the server may start later.
    ///
    /// # Errors
    /// [`TpuError::Store`] for an address of another form, and if no connection is made in time.
    pub fn connect(address: &str, timeout: Duration) -> Result<Self> {
        let deadline = Instant::now() + timeout;
        let (server, run) = address.split_once('#').unwrap_or((address, "burn-tpu"));
        let shown = without_password(server);
        let failed = |reason| TpuError::Store { address: shown.clone(), reason };
        let server = Address::parse(server).map_err(failed)?;
        let connection = loop {
            match Connection::open(&server, CONNECT.min(timeout), timeout) {
                Ok(connection) => break connection,
                Err(error) if Instant::now() >= deadline => return Err(failed(error.to_string())),
                Err(_) => std::thread::sleep(PAUSES[1]),
            }
        };
        Ok(Self { address: shown, run: run.into(), connection: Mutex::new(connection) })
    }

    /// Puts a value.
    ///
    /// # Errors
    /// [`TpuError::Store`] if the server does not answer.
    pub fn put(&self, key: impl AsRef<[u8]>, value: &[u8]) -> Result<()> {
        let kept = KEPT_SECONDS.to_string();
        let command: [&[u8]; 5] = [b"SET", &self.key(key), value, b"EX", kept.as_bytes()];
        self.connection.lock().run(&command).map(drop).map_err(|error| self.error(error))
    }

    /// Returns a value; `None` if it was not put yet.
    ///
    /// # Errors
    /// [`TpuError::Store`] if the server does not answer.
    pub fn try_get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.connection.lock().run(&[b"GET", &self.key(key)]).map_err(|error| self.error(error))
    }

    /// Waits for a value that another process puts; `None` if it was not put in time.
    ///
    /// # Errors
    /// [`TpuError::Store`] if the server does not answer.
    pub fn get(&self, key: impl AsRef<[u8]>, timeout: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + timeout;
        let [mut pause, longest] = PAUSES;
        loop {
            if let Some(value) = self.try_get(&key)? {
                return Ok(Some(value));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(longest);
        }
    }

    fn key(&self, key: impl AsRef<[u8]>) -> Vec<u8> {
        [self.run.as_bytes(), b"/", key.as_ref()].concat()
    }

    pub(super) fn error(&self, reason: impl std::fmt::Display) -> TpuError {
        TpuError::Store { address: self.address.clone(), reason: reason.to_string() }
    }
}

/// Returns an address as messages show it.
fn without_password(server: &str) -> String {
    match (server.split_once("://"), server.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => server.to_owned(),
    }
}

/// As a plugin uses it, with keys of its own.
impl KeyValueStore for Store {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        Store::put(self, plugins(key), value).map_err(|error| error.to_string())
    }

    fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        Store::try_get(self, plugins(key)).map_err(|error| error.to_string())
    }

    fn get(&self, key: &[u8], timeout: Duration) -> Result<Option<Vec<u8>>, String> {
        Store::get(self, plugins(key), timeout).map_err(|error| error.to_string())
    }
}

fn plugins(key: &[u8]) -> Vec<u8> {
    [b"plugin/", key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::serve;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn values_of_any_bytes_are_shared() {
        let address = serve("127.0.0.1:0").unwrap().to_string();
        let (one, other) = (Store::connect(&address, LONG).unwrap(), Store::connect(&address, LONG).unwrap());
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).chain(*b"\r\n$-1\r\n").collect();
        assert_eq!(other.try_get("key").unwrap(), None);
        assert_eq!(other.get("key", Duration::from_millis(5)).unwrap(), None);
        one.put("key", &bytes).unwrap();
        assert_eq!(other.try_get("key").unwrap(), Some(bytes));
        one.put("empty", b"").unwrap();
        assert_eq!(other.get("empty", LONG).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn runs_on_one_server_do_not_meet() {
        let address = serve("127.0.0.1:0").unwrap();
        let [first, second] =
            ["first", "second"].map(|run| Store::connect(&format!("redis://{address}#{run}"), LONG).unwrap());
        first.put("key", b"1").unwrap();
        assert_eq!((first.try_get("key").unwrap(), second.try_get("key").unwrap()), (Some(b"1".to_vec()), None));
    }

    #[test]
    fn a_waiting_process_gets_a_value_that_is_put_later() {
        let address = serve("127.0.0.1:0").unwrap().to_string();
        let reader = Store::connect(&address, LONG).unwrap();
        std::thread::scope(|scope| {
            let read = scope.spawn(move || reader.get("late", LONG));
            Store::connect(&address, LONG).unwrap().put("late", b"value").unwrap();
            assert_eq!(read.join().unwrap().unwrap(), Some(b"value".to_vec()));
        });
    }

    #[test]
    fn a_password_is_not_in_messages() {
        assert_eq!(without_password("redis://user:p@ss@host:1/0"), "redis://host:1/0");
        assert_eq!(without_password("host:1"), "host:1");
    }

    #[test]
    fn an_address_that_cannot_be_is_an_error_that_names_it() {
        for address in ["127.0.0.1:1", "no address"] {
            let error = Store::connect(address, Duration::from_millis(1)).map(|_| ()).unwrap_err();
            assert!(matches!(&error, TpuError::Store { .. }) && error.to_string().contains(address), "{error}");
        }
        assert!(matches!(serve("no address"), Err(TpuError::Store { .. })));
    }
}
