//! The check that all processes run the same program, before its first launch.
//!
//! A launch on the chips of several processes waits until each of them has launched the same program. If one recorded
//! another, all would wait for ever. So each process numbers the programs that it compiles for a device, and puts the hash
//! of number *n* into the store. Process 0 compares them and puts a verdict. If a hash differs, that process puts the text
//! of its program, and process 0 finds the first line that differs. All processes return that as the same error.
//!
//! Process 0 waits until all have read the verdict: it serves the store, and may end after its last program.

use super::Group;
use crate::error::{Result, TpuError};
use parking_lot::Mutex;

/// The programs of one device that the processes have agreed on.
pub(crate) struct Agreement {
    /// Names the device. It is the same in all processes.
    device: String,
    state: Mutex<AgreedPrograms>,
}

#[derive(Default)]
struct AgreedPrograms {
    /// The number of programs that all processes had.
    agreed: u64,
    /// The hash of the latest one, until it is compiled. A process whose compile fails tries again alone.
    compiling: Option<[u8; 32]>,
    /// The first failure, which every later check returns: the processes are out of step.
    failed: Option<TpuError>,
}

/// A program that is about to be compiled, as a process describes it to others.
pub(crate) struct Described<L, C> {
    pub(crate) hash: [u8; 32],
    /// Returns the lines of its text, each perhaps followed by a tab and the name of its op, which are not compared.
    pub(crate) lines: L,
    /// Returns where the node of a line was recorded.
    pub(crate) caller: C,
}

/// What process 0 found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    /// This process did not come.
    Missing(usize),
    /// The program of this process differs from that of process 0.
    Differs(usize),
}

/// The first line in which the programs of process 0 and of another one differ.
struct Difference {
    line: usize,
    first: String,
    other: String,
}

impl Agreement {
    pub(crate) fn new(device: String) -> Self {
        Self { device, state: Mutex::default() }
    }

    /// Returns once all processes have got here with the same program.
    ///
    /// # Errors
    /// [`TpuError::Disagreement`] with the first line that differs; [`TpuError::MissingProcess`] if one does not get here in
    /// time; [`TpuError::Store`]. Every later check returns the same error.
    pub(crate) fn check<L, C>(&self, group: &Group, program: Described<L, C>) -> Result<()>
    where
        L: FnOnce() -> Vec<String>,
        C: FnOnce(usize) -> String,
    {
        let mut state = self.state.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let (number, hash) = (state.agreed, program.hash);
        if state.compiling == Some(hash) {
            return Ok(());
        }
        let round = Round { group, device: &self.device, number };
        let checked = round.check(program);
        match &checked {
            Ok(()) => {
                state.agreed += 1;
                state.compiling = Some(hash);
            }
            Err(error) => state.failed = Some(error.clone()),
        }
        checked
    }

    /// The latest program was compiled. If it is ever compiled again, all processes do so.
    pub(crate) fn compiled(&self) {
        self.state.lock().compiling = None;
    }
}

/// The check of one program.
struct Round<'a> {
    group: &'a Group,
    device: &'a str,
    number: u64,
}

impl Round<'_> {
    fn check<L, C>(&self, program: Described<L, C>) -> Result<()>
    where
        L: FnOnce() -> Vec<String>,
        C: FnOnce(usize) -> String,
    {
        let Group { index, store, .. } = self.group;
        store.put(self.key("hash", *index), &program.hash)?;
        let verdict = if *index == 0 { self.lead(&program.hash)? } else { self.follow()? };
        let result = match verdict {
            Verdict::Same => Ok(()),
            Verdict::Missing(process) => Err(self.missing(process)),
            Verdict::Differs(process) => {
                let Difference { line, first, other } = self.difference(process, program.lines)?;
                Err(TpuError::Disagreement {
                    device: self.device.to_owned(),
                    program: self.number,
                    op: line,
                    process,
                    first,
                    other,
                    caller: (program.caller)(line),
                })
            }
        };
        self.leave()?;
        result
    }

    /// Compares the hashes, and puts the verdict.
    fn lead(&self, own: &[u8]) -> Result<Verdict> {
        let mut verdict = Verdict::Same;
        for process in 1..self.group.count {
            verdict = match self.group.wait(&self.key("hash", process), process)? {
                Some(hash) if hash == own => continue,
                Some(_) => Verdict::Differs(process),
                None => Verdict::Missing(process),
            };
            break;
        }
        self.group.store.put(self.key("verdict", 0), verdict.to_string().as_bytes())?;
        Ok(verdict)
    }

    /// Waits for the verdict. If none comes, another process may be the one that is missing.
    fn follow(&self) -> Result<Verdict> {
        if let Some(verdict) = self.group.wait(&self.key("verdict", 0), 0)? {
            let text = String::from_utf8_lossy(&verdict);
            return text.parse().map_err(|()| self.group.store.error(format!("{text:?} is no verdict")));
        }
        for process in 0..self.group.count {
            if self.group.store.try_get(self.key("hash", process))?.is_none() {
                return Ok(Verdict::Missing(process));
            }
        }
        Ok(Verdict::Missing(0))
    }

    /// Returns the first line that differs: process 0 finds it, in its own text and in the other one's.
    fn difference(&self, process: usize, lines: impl FnOnce() -> Vec<String>) -> Result<Difference> {
        let Group { index, store, .. } = self.group;
        let (text, report) = (self.key("text", process), self.key("report", 0));
        if *index == process {
            store.put(&text, lines().join("\n").as_bytes())?;
        } else if *index == 0 {
            let other = self.group.wait(&text, process)?.ok_or_else(|| self.missing(process))?;
            let difference = Difference::of(&lines(), &String::from_utf8_lossy(&other));
            store.put(&report, difference.to_string().as_bytes())?;
            return Ok(difference);
        }
        let found = self.group.wait(&report, 0)?.ok_or_else(|| self.missing(0))?;
        let found = String::from_utf8_lossy(&found);
        Difference::parse(&found).ok_or_else(|| store.error(format!("{found:?} is no report")))
    }

    /// Says that this process needs nothing more of this round. Process 0 waits for all others, but not for one that is
    /// gone.
    fn leave(&self) -> Result<()> {
        let Group { index, count, store, .. } = self.group;
        if *index > 0 {
            return store.put(self.key("left", *index), b"");
        }
        for process in 1..*count {
            if self.group.wait(&self.key("left", process), process)?.is_none() {
                tracing::warn!(process, "a process did not answer");
                break;
            }
        }
        Ok(())
    }

    fn key(&self, what: &str, process: usize) -> String {
        format!("program/{}/{}/{what}/{process}", self.device, self.number)
    }

    fn missing(&self, process: usize) -> TpuError {
        self.group.missing(process, format!("program {} of {}", self.number, self.device))
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Same => f.write_str("same"),
            Verdict::Missing(process) => write!(f, "missing {process}"),
            Verdict::Differs(process) => write!(f, "differs {process}"),
        }
    }
}

impl std::str::FromStr for Verdict {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let process = |text: &str| text.parse().map_err(|_| ());
        match text.split_once(' ') {
            None if text == "same" => Ok(Verdict::Same),
            Some(("missing", number)) => process(number).map(Verdict::Missing),
            Some(("differs", number)) => process(number).map(Verdict::Differs),
            _ => Err(()),
        }
    }
}

impl Difference {
    fn of(own: &[String], other: &str) -> Self {
        let (own, other): (Vec<&str>, Vec<&str>) = (own.iter().map(String::as_str).collect(), other.lines().collect());
        let compared = |lines: &[&str], line: usize| lines.get(line).map(|text| op_of(text).0.to_owned());
        let most = own.len().max(other.len());
        let line = (0..most).find(|&line| compared(&own, line) != compared(&other, line)).unwrap_or(most);
        let shown = |lines: &[&str]| match lines.get(line).map(|text| op_of(text)) {
            Some((text, Some(name))) => format!("{text} ({name})"),
            Some((text, None)) => text.to_owned(),
            None => "nothing: the program ends here".to_owned(),
        };
        Self { line, first: shown(&own), other: shown(&other) }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::to_owned);
        let line = lines.next()?.parse().ok()?;
        Some(Self { line, first: lines.next()?, other: lines.next()? })
    }
}

/// Splits a line into what is compared and the name of its op.
fn op_of(line: &str) -> (&str, Option<&str>) {
    line.split_once('\t').map_or((line, None), |(text, name)| (text, Some(name)))
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}\n{}", self.line, self.first, self.other)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::distributed::{Store, serve};
    use std::sync::Arc;
    use std::time::Duration;

    pub(in crate::distributed) const LONG: Duration = Duration::from_secs(60);

    /// Runs `process` on a thread for each number, as the process with that number of `count`.
    pub(in crate::distributed) fn processes<T: Send>(
        count: usize,
        timeout: Duration,
        numbers: &[usize],
        process: impl Fn(&Group) -> T + Sync,
    ) -> Vec<T> {
        let address = serve("127.0.0.1:0").unwrap().to_string();
        let run = |index: usize| {
            let store = Arc::new(Store::connect(&address, LONG).unwrap());
            process(&Group { index, count, timeout, store })
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = numbers.iter().map(|&index| scope.spawn(move || run(index))).collect::<Vec<_>>();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// A program whose lines are these; the hash is its first bytes.
    fn program(lines: &[&str]) -> Described<impl FnOnce() -> Vec<String>, impl FnOnce(usize) -> String> {
        let mut hash = [0; 32];
        let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
        text.concat().bytes().enumerate().for_each(|(i, byte)| hash[i % 32] ^= byte.rotate_left(i as u32 / 32));
        Described { hash, lines: move || text, caller: |line| format!("line {line}") }
    }

    #[test]
    fn equal_programs_pass() {
        let passed = processes(3, LONG, &[0, 1, 2], |group| {
            let agreement = Agreement::new("mesh".into());
            (0..3).try_for_each(|number| agreement.check(group, program(&[&format!("%{number} = add")])))
        });
        assert!(passed.iter().all(Result::is_ok), "{passed:?}");
    }

    #[test]
    fn a_compile_that_is_tried_again_is_not_compared_again() {
        let passed = processes(2, LONG, &[0, 1], |group| {
            let agreement = Agreement::new("mesh".into());
            // The first compile of process 1 fails.
            (0..=group.index).try_for_each(|_| agreement.check(group, program(&["%0 = add"])))?;
            agreement.compiled();
            agreement.check(group, program(&["%0 = add"]))
        });
        assert!(passed.iter().all(Result::is_ok), "{passed:?}");
    }

    #[test]
    fn a_program_that_differs_is_the_same_error_in_all_processes() {
        let errors = processes(3, LONG, &[0, 1, 2], |group| {
            let agreement = Agreement::new("mesh".into());
            agreement.check(group, program(&["%0 = parameter"])).unwrap();
            let second = if group.index == 2 { "%1 = multiply\tfloat_mul" } else { "%1 = add\tfloat_add" };
            let error = agreement.check(group, program(&["%0 = parameter", second, "outputs %1"])).unwrap_err();
            // It stays.
            assert_eq!(agreement.check(group, program(&[])).unwrap_err().to_string(), error.to_string());
            error
        });
        for error in &errors {
            let TpuError::Disagreement { program: 1, op: 1, process: 2, first, other, caller, .. } = error else {
                panic!("{error}");
            };
            assert_eq!((&**first, &**other), ("%1 = add (float_add)", "%1 = multiply (float_mul)"));
            assert_eq!(caller, "line 1");
        }
    }

    #[test]
    fn a_program_that_ends_earlier_differs_where_it_ends() {
        let difference = Difference::of(&["a".into(), "b".into()], "a");
        assert_eq!((difference.line, &*difference.first), (1, "b"));
        assert!(difference.other.contains("ends"), "{}", difference.other);
        // The names of ops are not compared.
        assert_eq!(Difference::of(&["a\tx".into(), "b".into()], "a\ty\nc").line, 1);
    }

    #[test]
    fn a_process_that_does_not_come_is_named_by_all_others() {
        for missing in [1, 2] {
            let present: Vec<usize> = (0..3).filter(|&index| index != missing).collect();
            let errors = processes(3, Duration::from_millis(300), &present, |group| {
                Agreement::new("mesh".into()).check(group, program(&["%0 = add"])).unwrap_err()
            });
            for error in errors {
                assert!(
                    matches!(error, TpuError::MissingProcess { process, count: 3, .. } if process == missing),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn process_zero_is_named_if_it_does_not_come() {
        let errors = processes(2, Duration::from_millis(200), &[1], |group| {
            Agreement::new("mesh".into()).check(group, program(&["%0 = add"])).unwrap_err()
        });
        assert!(matches!(errors[0], TpuError::MissingProcess { process: 0, .. }), "{:?}", errors[0]);
    }
}
