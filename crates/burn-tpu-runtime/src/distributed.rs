//! Several processes that run the same program: which one this is, what it reads, and what all of them must agree on.
//!
//! Owns: the membership, from the environment; the key-value store that the processes share ([`serve`], `store.rs`);
//! the check that they record the same programs (`agreement.rs`); the step after which all stop (`stop.rs`); work that
//! is done when all have done their part (`exchange.rs`). May not know: plugins, tensors, how programs are compiled.
//!
//! Every process runs the same program from its start. Three variables say which one it is, and `burn-tpu launch` sets
//! them:
//!
//! | variable | meaning |
//! |---|---|
//! | `BURN_TPU_PROCESS` | this process and the number of all, as `1/4`: the second of four |
//! | `BURN_TPU_STORE` | `host:port`, where process 0 serves the store; or a server that is there: `redis://host:port` |
//! | `BURN_TPU_STORE_TIMEOUT_S` | how long a process waits for another one |
//!
//! Without them, a process is alone.
//!
//! ```
//! use burn_tpu_runtime::distributed;
//! assert_eq!((distributed::process_index()?, distributed::process_count()?), (0, 1));
//! assert_eq!(distributed::part(10)?, 0..10);
//! # Ok::<(), burn_tpu_runtime::TpuError>(())
//! ```

mod agreement;
mod connection;
mod exchange;
mod resp;
mod server;
mod stop;
mod store;

pub(crate) use agreement::{Agreement, Described};
pub use exchange::Exchange;
pub use server::serve;
pub use stop::StopAgreement;
pub use store::Store;

use crate::activity::{WaitFor, Waiting};
use crate::error::{Result, TpuError};
use crate::options::parse::{number, variable};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const PROCESS: &str = "BURN_TPU_PROCESS";
const STORE: &str = "BURN_TPU_STORE";
const TIMEOUT: &str = "BURN_TPU_STORE_TIMEOUT_S";

/// The variables of libtpu that say the same of a TPU slice's hosts.
const TPU_INDEX: &str = "TPU_WORKER_ID";
const TPU_HOSTS: &str = "TPU_WORKER_HOSTNAMES";

/// How long a process waits for another one, which may have to load its data first.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The exit code of a process that was told to end, has saved, and is to be started again: `EX_TEMPFAIL` of
/// `sysexits.h`. The other processes of the run end so too, and `burn-tpu launch` waits for them.
pub const PREEMPTED: u8 = 75;

/// Returns the number of this process among those that run the program; 0 for one that is alone.
///
/// # Errors
/// [`TpuError::Option`] for a variable with an invalid value.
pub fn process_index() -> Result<usize> {
    membership().map(|membership| membership.index)
}

/// Returns the number of processes that run the program; 1 for one that is alone.
///
/// # Errors
/// [`TpuError::Option`] for a variable with an invalid value.
pub fn process_count() -> Result<usize> {
    membership().map(|membership| membership.count)
}

/// Returns this process's part of `items` items, such as the rows of a data set or the files of one.
///
/// All parts have the same size, since processes that take different numbers of steps wait for each other for ever. The
/// last items, fewer than there are processes, belong to no part.
///
/// # Errors
/// [`TpuError::Option`] for a variable with an invalid value.
pub fn part(items: usize) -> Result<Range<usize>> {
    membership().map(|membership| membership.part(items))
}

/// This process among all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Membership {
    index: usize,
    count: usize,
    /// Where the store is; there is one if there are several processes.
    store: Option<String>,
    timeout: Duration,
}

/// Returns what the environment says, which is read once.
fn membership() -> Result<&'static Membership> {
    static MEMBERSHIP: OnceLock<Result<Membership>> = OnceLock::new();
    MEMBERSHIP.get_or_init(|| Membership::read(variable)).as_ref().map_err(Clone::clone)
}

impl Membership {
    /// Reads the variables. If only the store is named, libtpu's variables name the process.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let (process, store) = (variable(PROCESS), variable(STORE));
        let seconds = variable(TIMEOUT).map(|text| {
            number(1, u64::MAX)(&text).map_err(|rule| TpuError::Option { name: TIMEOUT.into(), value: text, rule })
        });
        let timeout = seconds.transpose()?.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let (index, count) = match (process, &store, variable(TPU_INDEX).zip(variable(TPU_HOSTS))) {
            (Some(process), ..) => of_process(&process)?,
            (None, Some(_), Some((index, hosts))) => of_libtpu(&index, &hosts)?,
            (None, Some(store), None) => {
                let rule = format!("needs {PROCESS} too, as 0/2");
                return Err(TpuError::Option { name: STORE.into(), value: store.clone(), rule });
            }
            (None, None, _) => (0, 1),
        };
        if count > 1 && store.is_none() {
            let rule = format!("needs {STORE} too: host:port of process 0, or redis://host:port");
            return Err(TpuError::Option { name: PROCESS.into(), value: format!("{index}/{count}"), rule });
        }
        Ok(Self { index, count, store, timeout })
    }

    fn part(&self, items: usize) -> Range<usize> {
        let size = items / self.count;
        self.index * size..(self.index + 1) * size
    }
}

/// Parses `1/4`.
fn of_process(text: &str) -> Result<(usize, usize)> {
    let parts = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    parts.filter(|(index, count)| index < count).ok_or_else(|| TpuError::Option {
        name: PROCESS.into(),
        value: text.into(),
        rule: "is not INDEX/COUNT with an index below the count, such as 0/2".into(),
    })
}

/// Returns what libtpu's variables say: this host's number, and the names of all.
fn of_libtpu(index: &str, hosts: &str) -> Result<(usize, usize)> {
    let count = hosts.split(',').count();
    let parsed = number(0, count as u64 - 1)(index);
    let parsed = parsed.map_err(|rule| TpuError::Option { name: TPU_INDEX.into(), value: index.into(), rule })?;
    Ok((parsed, count))
}

/// The processes that run the program, and the store that they share.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) index: usize,
    pub(crate) count: usize,
    pub(crate) timeout: Duration,
    pub(crate) store: Arc<Store>,
}

/// Returns the group of this process, which it joins at the first call; `None` for a process that is alone.
///
/// # Errors
/// [`TpuError::Option`]; [`TpuError::Store`] if the store cannot be served; [`TpuError::MissingProcess`] if nobody
/// serves it.
pub(crate) fn group() -> Result<Option<&'static Group>> {
    static GROUP: OnceLock<Result<Option<Group>>> = OnceLock::new();
    let joined = GROUP.get_or_init(|| membership().and_then(Group::join));
    joined.as_ref().map(Option::as_ref).map_err(Clone::clone)
}

impl Group {
    fn join(membership: &Membership) -> Result<Option<Self>> {
        let &Membership { index, count, timeout, .. } = membership;
        let Some(address) = membership.store.as_deref().filter(|_| count > 1) else { return Ok(None) };
        let is_ours = !address.contains("://");
        if is_ours && index == 0 {
            serve(address)?;
        }
        let store = Store::connect(address, timeout).map_err(|error| match is_ours && index > 0 {
            true => TpuError::MissingProcess {
                process: 0,
                count,
                what: format!("the store at {address}"),
                seconds: timeout.as_secs_f64(),
            },
            false => error,
        })?;
        tracing::info!(index, count, "the process is one of several");
        Ok(Some(Self { index, count, timeout, store: Arc::new(store) }))
    }

    /// Returns the value that process 0 has: a number that all must share, such as a seed.
    ///
    /// # Errors
    /// [`TpuError::MissingProcess`] if process 0 does not get here in time; [`TpuError::Store`].
    pub(crate) fn shared(&self, key: &str, own: u64) -> Result<u64> {
        if self.index == 0 {
            self.store.put(key, &own.to_le_bytes())?;
            return Ok(own);
        }
        let value = self.wait(key, 0)?.ok_or_else(|| self.missing(0, key))?;
        let value = value.try_into().map_err(|_| self.store.error(format!("{key} is not a number")))?;
        Ok(u64::from_le_bytes(value))
    }

    /// Waits for a value that a process will put; `None` if it does not come.
    fn wait(&self, key: &str, process: usize) -> Result<Option<Vec<u8>>> {
        self.wait_for(key, process, self.timeout)
    }

    /// [`Group::wait`] with another time limit.
    fn wait_for(&self, key: &str, process: usize, limit: Duration) -> Result<Option<Vec<u8>>> {
        tracing::trace!(key, process, "waiting");
        let _wait = Waiting::new(None, WaitFor::Process { process, key: key.to_owned() });
        self.store.get(key, limit)
    }

    fn missing(&self, process: usize, what: impl Into<String>) -> TpuError {
        let seconds = self.timeout.as_secs_f64();
        TpuError::MissingProcess { process, count: self.count, what: what.into(), seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Membership> {
        Membership::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn a_process_without_variables_is_alone() {
        let alone = read(&[]).unwrap();
        assert_eq!((alone.index, alone.count, alone.part(7)), (0, 1, 0..7));
        // Those of libtpu alone make no group.
        assert_eq!(read(&[(TPU_INDEX, "1"), (TPU_HOSTS, "a,b")]).unwrap(), alone);
    }

    #[test]
    fn variables_name_the_process_and_the_store() {
        let given = read(&[(PROCESS, "1/3"), (STORE, "a:1"), (TIMEOUT, "7")]).unwrap();
        let expected = Membership { index: 1, count: 3, store: Some("a:1".into()), timeout: Duration::from_secs(7) };
        assert_eq!(given, expected);
        let on_a_slice = read(&[(STORE, "a:1"), (TPU_INDEX, "1"), (TPU_HOSTS, "a,b,c")]).unwrap();
        assert_eq!(on_a_slice, Membership { timeout: DEFAULT_TIMEOUT, ..expected });
    }

    #[test]
    fn invalid_variables_are_errors_that_name_them() {
        let refused: [(&[(&str, &str)], &str); 6] = [
            (&[(PROCESS, "2/2"), (STORE, "a:1")], "INDEX/COUNT"),
            (&[(PROCESS, "one"), (STORE, "a:1")], "INDEX/COUNT"),
            (&[(PROCESS, "0/2")], "needs BURN_TPU_STORE"),
            (&[(STORE, "a:1")], "needs BURN_TPU_PROCESS"),
            (&[(STORE, "a:1"), (TPU_INDEX, "2"), (TPU_HOSTS, "a,b")], "from 0 to 1"),
            (&[(TIMEOUT, "soon")], "is not a number"),
        ];
        for (variables, part) in refused {
            let error = read(variables).unwrap_err();
            assert!(matches!(error, TpuError::Option { .. }) && error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn parts_are_equal_and_do_not_overlap() {
        let of = |index| Membership { index, count: 3, store: None, timeout: DEFAULT_TIMEOUT };
        let parts: Vec<_> = (0..3).map(|index| of(index).part(11)).collect();
        assert_eq!(parts, [0..3, 3..6, 6..9]);
        assert_eq!(of(2).part(2), 0..0);
    }
}
