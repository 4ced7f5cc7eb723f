//! Compiler options of one program, found by trying: the level `aggressive` on TPUs.
//!
//! libtpu has options whose best value depends on the program: above all how much vector memory a fusion may use. A program
//! that is large enough is compiled with a few values of them, and the compiler's own estimate of its cycles decides. The
//! choice is noted in the folder of compiled programs, so that it is made once, and it is part of the key that the program
//! is stored by.
//!
//! Owns: the candidates, the rule of the choice, and its note. May not know: how programs are lowered, which engine
//! compiles.

use crate::cache::{DiskCache, Key};
use crate::options::ChosenOptions;
use burn_tpu_pjrt::{CompileOptions, Executable, HloModule};
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A choice: options by name, each with its value.
type Candidate = &'static [(&'static str, i64)];

/// What is tried beside the compiler's defaults. (`docs/decisions/0034-attention-in-kernels-and-options-by-trial.md` says
/// why these.)
const CANDIDATES: [Candidate; 3] = [
    &[("xla_tpu_scoped_vmem_limit_kib", 32_768)],
    &[("xla_tpu_scoped_vmem_limit_kib", 49_152)],
    &[("xla_tpu_scoped_vmem_limit_kib", 65_536)],
];

/// A program of fewer estimated cycles (0.7 ms on v5e) is not worth several compiles.
const LEAST_CYCLES: u64 = 1_000_000;

/// A candidate must save at least one cycle of this many: the estimates are no better than that.
const LEAST_SAVED: u64 = 100;

/// Processors for each compile that runs beside others: one compile keeps several busy, and takes gigabytes.
const PROCESSORS: usize = 4;

/// Chooses compiler options for the programs of a device.
pub(crate) struct Tuner {
    /// The longest time that compiles of one program may take together; zero for no limit.
    limit: Duration,
    /// The options that the user has set, which are not tried.
    set_by_user: Vec<String>,
}

impl Tuner {
    /// Returns the tuner of a TPU's programs, or `None` below the level `aggressive`.
    pub(crate) fn of(options: &crate::TpuOptions) -> Option<Self> {
        let set_by_user = options.compiler_flags.iter().map(|(name, _)| name.clone()).collect();
        let is_on = options.optimization >= burn_tpu_fusion::Optimization::Aggressive;
        is_on.then_some(Self { limit: options.compile_timeout, set_by_user })
    }

    /// Returns what was chosen for a program before, as noted on disk.
    pub(crate) fn noted(&self, disk: Option<&DiskCache>, note: &Key) -> Option<ChosenOptions> {
        let noted: ChosenOptions = serde_json::from_slice(&disk?.note(note)?).ok()?;
        // An option that the user sets now holds.
        let is_free = noted.options.iter().all(|(name, _)| !self.set_by_user.contains(name));
        is_free.then_some(noted)
    }

    /// Notes a choice on disk. A failure is reported as a warning.
    pub(crate) fn note(&self, disk: Option<&DiskCache>, note: &Key, chosen: &ChosenOptions) {
        if let (Some(disk), Ok(text)) = (disk, serde_json::to_vec(chosen)) {
            disk.put_note(note, &text);
        }
    }

    /// Compiles a program with the defaults and, if it is large enough, with each candidate. Returns the program with the
    /// fewest estimated cycles (of equal ones the first), and the choice, which is missing if the time did not suffice to
    /// try all: then it is the program of the defaults.
    ///
    /// # Errors
    /// That of the compile with the defaults. A candidate that does not compile is left out.
    pub(crate) fn compile<E: Send, X: Display + Send>(
        &self,
        defaults: &CompileOptions,
        compile: impl Fn(&CompileOptions) -> Result<E, X> + Sync,
        cycles: impl Fn(&E) -> Option<u64> + Sync,
    ) -> Result<(E, Option<ChosenOptions>), X> {
        let start = Instant::now();
        let program = compile(defaults)?;
        let cycles_before = cycles(&program).unwrap_or(0);
        let unchanged = ChosenOptions { cycles_before, cycles_after: cycles_before, ..ChosenOptions::default() };
        if cycles_before < LEAST_CYCLES {
            return Ok((program, Some(unchanged)));
        }
        let is_free =
            |candidate: &&Candidate| candidate.iter().all(|(name, _)| !self.set_by_user.iter().any(|set| set == name));
        let candidates: Vec<Candidate> = CANDIDATES.iter().filter(is_free).copied().collect();
        let (one, next) = (start.elapsed(), AtomicUsize::new(0));
        let has_time = || self.limit.is_zero() || start.elapsed() + 2 * one < self.limit;
        let try_next = || {
            let mut tried = Vec::new();
            while has_time() {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(candidate) = candidates.get(place) else { break };
                let options = candidate.iter().fold(defaults.clone(), |o, (name, value)| o.set(*name, *value));
                tried.push((place, compile(&options).map(|program| (cycles(&program), program))));
            }
            tried
        };
        let workers =
            (std::thread::available_parallelism().map_or(1, usize::from) / PROCESSORS).clamp(1, CANDIDATES.len());
        let mut tried: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(try_next)).collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).flatten().collect()
        });
        if tried.len() < candidates.len() {
            tracing::warn!(
                seconds = self.limit.as_secs_f64(),
                "the compile timeout is too short to choose compiler options"
            );
            return Ok((program, None));
        }
        tried.sort_by_key(|(place, _)| *place);
        let mut best = (program, ChosenOptions { tried: candidates.len(), ..unchanged });
        for (place, result) in tried {
            match result {
                Ok((Some(cycles), program)) if is_better(cycles, &best.1) => {
                    let options = candidates[place].iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
                    best = (program, ChosenOptions { options, cycles_after: cycles, ..best.1 });
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(options = ?candidates[place], %error, "these options do not compile"),
            }
        }
        tracing::info!(chosen = %best.1, "compiler options were chosen");
        Ok((best.0, Some(best.1)))
    }
}

fn is_better(cycles: u64, than: &ChosenOptions) -> bool {
    cycles + than.cycles_before / LEAST_SAVED <= than.cycles_after
}

/// Returns the cycles that a TPU's compiler estimates for a program; `None` if it estimates none.
pub(crate) fn estimated_cycles(executable: &Executable) -> Option<u64> {
    let module = executable.optimized_program().and_then(|program| HloModule::parse(&program.code));
    module.ok()?.cycles()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Optimization, TpuOptions};
    use std::sync::Mutex;

    fn tuner(options: TpuOptions) -> Tuner {
        Tuner::of(&options.optimization(Optimization::Aggressive)).expect("a tuner")
    }

    /// Returns what is chosen if the compiler estimates these cycles for the defaults and each candidate, and the number of
    /// compiles. A candidate without cycles does not compile.
    fn chosen(tuner: &Tuner, cycles: [Option<u64>; 4]) -> (Option<ChosenOptions>, usize) {
        let compiles = Mutex::new(0);
        let compile = |options: &CompileOptions| {
            *compiles.lock().unwrap() += 1;
            let names = |candidate: &&Candidate| {
                let with = candidate.iter().fold(CompileOptions::default(), |o, (name, value)| o.set(*name, *value));
                with == *options
            };
            let place = CANDIDATES.iter().position(|candidate| names(&candidate)).map_or(0, |place| place + 1);
            cycles[place].ok_or("does not compile")
        };
        let (best, chosen) = tuner.compile(&CompileOptions::default(), compile, |cycles| Some(*cycles)).unwrap();
        if let Some(chosen) = &chosen {
            assert_eq!(best, chosen.cycles_after);
        }
        let compiles = *compiles.lock().unwrap();
        (chosen, compiles)
    }

    fn limit(kib: i64) -> Vec<(String, i64)> {
        vec![("xla_tpu_scoped_vmem_limit_kib".to_owned(), kib)]
    }

    #[test]
    fn there_is_no_tuner_below_the_level() {
        assert!(Tuner::of(&TpuOptions::default()).is_none());
    }

    #[test]
    fn the_fewest_cycles_win_and_of_equal_ones_the_first() {
        let all = tuner(TpuOptions::default().compile_timeout(Duration::ZERO));
        let (best, compiles) = chosen(&all, [Some(10_000_000), Some(9_000_000), None, Some(9_000_000)]);
        let best = best.unwrap();
        assert_eq!((best.options, best.cycles_after, best.tried, compiles), (limit(32_768), 9_000_000, 3, 4));
        let best = chosen(&all, [Some(10_000_000), Some(9_950_000), Some(8_000_000), Some(7_000_000)]).0.unwrap();
        assert_eq!(best.options, limit(65_536));
        assert!(best.to_string().contains("=65536 of 4 sets: 10.00 -> 7.00 M cycles"), "{best}");
    }

    #[test]
    fn a_gain_within_the_estimates_error_is_none() {
        let all = tuner(TpuOptions::default().compile_timeout(Duration::ZERO));
        let best = chosen(&all, [Some(10_000_000), Some(9_950_000), Some(12_000_000), None]).0.unwrap();
        assert!(best.options.is_empty() && best.key().is_empty() && best.tried == 3);
    }

    #[test]
    fn a_small_program_is_compiled_once() {
        let all = tuner(TpuOptions::default());
        let (best, compiles) = chosen(&all, [Some(999_999), Some(1), Some(1), Some(1)]);
        assert_eq!((best.unwrap().tried, compiles), (0, 1));
    }

    #[test]
    fn what_the_user_sets_and_what_the_time_forbids_is_not_tried() {
        let set = tuner(TpuOptions::default().compiler_flag("xla_tpu_scoped_vmem_limit_kib", "20000"));
        assert_eq!(chosen(&set, [Some(10_000_000), Some(1), Some(1), Some(1)]).1, 1);
        let short = tuner(TpuOptions::default().compile_timeout(Duration::from_nanos(1)));
        assert_eq!(chosen(&short, [Some(10_000_000), Some(1), Some(1), Some(1)]), (None, 1));
    }

    #[test]
    fn a_choice_is_read_from_its_note() {
        let folder = tempfile::tempdir().unwrap();
        let counters = std::sync::Arc::default();
        let open = || DiskCache::open(folder.path(), 1 << 20, Duration::ZERO, Default::default(), &counters);
        let tuner = tuner(TpuOptions::default());
        let disk = open().unwrap();
        let (note, other) = (disk.note_key([1; 32], [2; 32]), disk.note_key([1; 32], [3; 32]));
        let choice = ChosenOptions { options: limit(49_152), cycles_before: 9, cycles_after: 7, tried: 3 };
        assert_eq!(tuner.noted(Some(&disk), &note), None);
        tuner.note(Some(&disk), &note, &choice);
        let disk = open().unwrap();
        assert_eq!((tuner.noted(Some(&disk), &note), tuner.noted(Some(&disk), &other)), (Some(choice), None));
        // A damaged note is as none.
        let mut file = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
        let file = file.find(|path| path.extension().is_some()).unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(tuner.noted(Some(&disk), &note), None);
    }
}
