//! Work that every process does a part of, and that is done when all have done theirs: a checkpoint.
//!
//! Round by round, each process says how its part went, process 0 hears all and decides, and all get its answer. Every
//! process takes the same rounds in the same order; nothing here is a launch, so a thread of its own may take them.
//!
//! A wait has the group's time limit, of which process 0 uses one for the others, and the others two for its answer: so
//! its answer, which names the process that is missing, comes before they give up on it.

use super::Group;
use crate::error::{Result, TpuError};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long process 0 waits for another one before it says so.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long process 0 waits at its end for the others to read its last answer, which they look for all the time.
const PARTING: Duration = Duration::from_secs(10);

/// This process's part in the rounds. All processes have to make theirs in the same order.
pub struct Exchange {
    group: Group,
    /// Tells the keys of this exchange from those of others.
    name: String,
    next: AtomicU64,
}

impl Exchange {
    /// Returns this process's part; `None` for a process that is alone.
    ///
    /// # Errors
    /// Those of joining the group: [`TpuError::Option`], [`TpuError::Store`], [`TpuError::MissingProcess`].
    pub fn join() -> Result<Option<Self>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let Some(group) = super::group()? else { return Ok(None) };
        Ok(Some(Self::of(group.clone(), NUMBER.fetch_add(1, Relaxed))))
    }

    fn of(group: Group, number: u64) -> Self {
        Self { group, name: format!("exchange/{number}"), next: AtomicU64::new(0) }
    }

    /// Takes a round: puts this process's message, and returns the answer that process 0 gave to those of all. `decide`
    /// runs in process 0 alone and gets the messages in the order of the processes. `what` returns what process *n*
    /// does meanwhile, in words, for errors and warnings.
    ///
    /// # Errors
    /// [`TpuError::MissingProcess`] for a process that says nothing in time, in all processes; [`TpuError::Store`].
    pub fn round(
        &self,
        message: &str,
        what: impl Fn(usize) -> String,
        decide: impl FnOnce(Vec<String>) -> String,
    ) -> Result<String> {
        let round = format!("{}/{}", self.name, self.next.fetch_add(1, Relaxed));
        let Group { index, timeout, store, .. } = &self.group;
        let answer = format!("{round}/answer");
        if *index > 0 {
            store.put(format!("{round}/{index}"), message.as_bytes())?;
            let answer = self.wait(&answer, 0, *timeout * 2, || "the answer of process 0".to_owned())?;
            return self.unpack(&answer);
        }
        let packed = match self.messages(&round, message, what) {
            Ok(messages) => format!("+{}", decide(messages)),
            Err(TpuError::MissingProcess { process, what, .. }) => format!("-{process} {what}"),
            Err(error) => return Err(error),
        };
        store.put(&answer, packed.as_bytes())?;
        self.unpack(&packed)
    }

    /// Returns the messages of all processes, of which process 0, this one, has `own`.
    fn messages(&self, round: &str, own: &str, what: impl Fn(usize) -> String) -> Result<Vec<String>> {
        let deadline = Instant::now() + self.group.timeout;
        let mut messages = vec![own.to_owned()];
        for process in 1..self.group.count {
            let (key, left) = (format!("{round}/{process}"), deadline.saturating_duration_since(Instant::now()));
            messages.push(self.wait(&key, process, left, || what(process))?);
            // The store keeps its values for a day, and a message may be long.
            self.group.store.put(key, b"")?;
        }
        Ok(messages)
    }

    /// Waits for what a process puts, and says so when it takes long.
    fn wait(&self, key: &str, process: usize, limit: Duration, what: impl Fn() -> String) -> Result<String> {
        let (begun, mut warned) = (Instant::now(), PATIENCE);
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            if let Some(value) = self.group.wait_for(key, process, left.min(PATIENCE))? {
                return String::from_utf8(value).map_err(|_| self.group.store.error(format!("{key} is no text")));
            }
            if begun.elapsed() >= limit {
                return Err(self.group.missing(process, what()));
            }
            if begun.elapsed() >= warned {
                tracing::warn!(process, seconds = begun.elapsed().as_secs(), "still waiting for {}", what());
                warned *= 2;
            }
        }
    }

    /// Returns an answer, or the error that it stands for.
    fn unpack(&self, packed: &str) -> Result<String> {
        if let Some(answer) = packed.strip_prefix('+') {
            return Ok(answer.to_owned());
        }
        let missing = packed.strip_prefix('-').and_then(|rest| rest.split_once(' '));
        let missing = missing.and_then(|(process, what)| Some((process.parse().ok()?, what)));
        let (process, what) = missing.ok_or_else(|| self.group.store.error("an answer is not one"))?;
        Err(self.group.missing(process, what))
    }
}

/// Process 0 serves the store, so it waits until all others have their answers.
impl Drop for Exchange {
    fn drop(&mut self) {
        let Group { index, count, timeout, store, .. } = &self.group;
        let left = |process: usize| format!("{}/left/{process}", self.name);
        if store.put(left(*index), b"").is_err() || *index > 0 || std::thread::panicking() {
            return;
        }
        let deadline = Instant::now() + PARTING.min(*timeout);
        for process in 1..*count {
            let wait = deadline.saturating_duration_since(Instant::now());
            if !matches!(self.group.wait_for(&left(process), process, wait), Ok(Some(_))) {
                tracing::warn!(process, "a process did not say that it has ended");
            }
        }
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({} of {}, {})", self.group.index, self.group.count, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::agreement::tests::{LONG, processes};
    use super::*;

    #[test]
    fn all_get_the_answer_of_process_zero_to_what_all_said() {
        let answers = processes(3, LONG, &[0, 1, 2], |group| {
            let index = group.index;
            let exchange = Exchange::of(group.clone(), 0);
            let round = |message: String| exchange.round(&message, |_| String::new(), |all| all.join(" "));
            [round(format!("a{index}")).unwrap(), round(format!("b{index}")).unwrap()]
        });
        assert_eq!(answers, vec![["a0 a1 a2".to_owned(), "b0 b1 b2".to_owned()]; 3]);
    }

    #[test]
    fn a_process_that_says_nothing_is_named_in_all_with_what_it_did() {
        let errors = processes(3, Duration::from_millis(300), &[0, 1], |group| {
            let exchange = Exchange::of(group.clone(), 0);
            let what = |process| format!("file {process}");
            exchange.round("", what, |_| panic!("one is missing")).unwrap_err()
        });
        for error in errors {
            let TpuError::MissingProcess { process: 2, what, .. } = &error else { panic!("{error}") };
            assert_eq!(what, "file 2");
        }
    }
}
