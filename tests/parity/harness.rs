//! Runs the rows: samples cases, runs many of them as one program, compares them with the reference, and shrinks the first
//! one that disagrees.
//!
//! XLA takes about 10 ms to compile one op. Therefore a row records [`FORMS`] calls before it reads a result, and runs this
//! program [`DRAWS`] times with different values. A case that disagrees runs alone from then on.

use crate::case::Case;
use crate::compare::{self, Class};
use crate::feed::{Feed, Read, Side};
use crate::strategies::{self, Cases};
use crate::version::{self, TpuDevice};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::cell::Cell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of calls per program.
const FORMS: usize = 32;

/// The number of runs of each program.
const DRAWS: usize = 8;

pub use crate::version::{Cpu, Ours};
/// A row's call on a backend.
pub type Call<B, A> = fn(&mut Feed<'_, B, A>);
/// A row's call on the reference.
type Reference<A> = Box<dyn Fn(&Case<A>) -> Result<Vec<Read>, String> + Send + Sync>;

/// A row's call on both sides, created by [`run!`](crate::run).
pub struct Run<A> {
    pub ours: Call<Ours, A>,
    pub reference: Reference<A>,
}

/// Returns a call on a reference backend.
pub fn on<B: burn_backend::Backend, A: Clone + 'static>(call: Call<B, A>) -> Reference<A> {
    Box::new(move |case| {
        let mut feed = Feed::new(case, Side::Reference, B::Device::default());
        call(&mut feed);
        feed.read()
    })
}

/// Creates a [`Run`]: the same call on our backend and on the reference (burn-ndarray, unless another is named), or, after
/// `=`, a different call on the reference. `B` names the backend.
#[macro_export]
macro_rules! run {
    (|$t:ident| $ours:expr) => { $crate::run!($crate::harness::Cpu: |$t| $ours) };
    ($reference:ty : |$t:ident| $ours:expr) => { $crate::run!($reference: |$t| $ours, = |$t| $ours) };
    (|$t:ident| $ours:expr, = |$u:ident| $theirs:expr) => {
        $crate::run!($crate::harness::Cpu: |$t| $ours, = |$u| $theirs)
    };
    ($reference:ty : |$t:ident| $ours:expr, = |$u:ident| $theirs:expr) => {
        $crate::harness::Run {
            ours: {
                #[allow(dead_code, reason = "not every call names its backend")]
                type B = $crate::harness::Ours;
                |$t| $ours
            },
            reference: {
                #[allow(dead_code, reason = "not every call names its backend")]
                type B = $reference;
                $crate::harness::on::<B, _>(|$u| $theirs)
            },
        }
    };
}

/// A test of one method of Burn's backend traits.
pub struct Row {
    pub method: &'static str,
    pub check: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// Returns a row: a method of Burn's backend traits, its cases, and its call.
pub fn row<A: Clone + Debug + 'static>(method: &'static str, class: Class, cases: Cases<A>, run: Run<A>) -> Row {
    Row { method, check: Box::new(move || Check { method, class, run: &run }.all(&cases)) }
}

/// Returns a row for a method that is not compared case by case, but must satisfy a law.
pub fn law(method: &'static str, check: fn(TpuDevice)) -> Row {
    let check = move || catch_unwind(|| check(device())).map_err(|panic| message(panic.as_ref()));
    Row { method, check: Box::new(check) }
}

/// Returns the device under test. Host fallback is denied on it.
pub fn device() -> TpuDevice {
    version::device().expect("main has checked for the plugin")
}

/// Returns the number of cases of each row.
pub fn cases() -> usize {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(version::CASES)
}

/// Returns the seed of all rows. It is fixed unless the user sets one: a change elsewhere must not fail by chance.
pub fn seed() -> u64 {
    std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}

struct Check<'a, A> {
    method: &'static str,
    class: Class,
    run: &'a Run<A>,
}

impl<A: Clone + Debug + 'static> Check<'_, A> {
    fn all(&self, cases: &Cases<A>) -> Result<(), String> {
        let forms = self::cases().div_ceil(DRAWS);
        for program in 0..forms.div_ceil(FORMS) {
            for draw in 0..DRAWS {
                self.draw(cases, (program, draw), FORMS.min(forms - program * FORMS))?;
            }
        }
        Ok(())
    }

    /// Runs one draw of a program with this number of forms.
    fn draw(&self, cases: &Cases<A>, (program, draw): (usize, usize), forms: usize) -> Result<(), String> {
        strategies::draw(draw);
        let mut runner = runner(self.method, program);
        let trees = (0..forms).map(|_| cases.new_tree(&mut runner)).collect::<Result<Vec<_>, _>>();
        let mut trees = trees.map_err(|reason| format!("no case: {reason}"))?;
        let batch: Vec<_> = trees.iter().map(|tree| tree.current()).collect();
        for (n, result) in self.batch(&batch).into_iter().enumerate() {
            result.or_else(|error| self.alone(&mut trees[n], error))?;
        }
        Ok(())
    }

    /// Runs cases as one program and compares each.
    fn batch(&self, cases: &[Case<A>]) -> Vec<Result<(), String>> {
        let device = device();
        let recorded: Vec<_> = cases
            .iter()
            .map(|case| {
                let mut feed = Feed::new(case, Side::Ours, device);
                catch_panic(|| (self.run.ours)(&mut feed)).map(|()| feed)
            })
            .collect();
        let compare = |(case, feed): (&Case<A>, Result<Feed<'_, Ours, A>, String>)| {
            let ours = feed?.read()?;
            let reference = self.reference(case)?;
            match compare::agree(case, self.class, &ours, &reference, None) {
                Ok(()) => Ok(()),
                Err(error) => {
                    let flushed = case.flushed().ok_or(error)?;
                    compare::agree(case, self.class, &ours, &reference, Some(&self.reference(&flushed)?))
                }
            }
        };
        cases.iter().zip(recorded).map(compare).collect()
    }

    fn reference(&self, case: &Case<A>) -> Result<Vec<Read>, String> {
        let reads = catch_panic(|| (self.run.reference)(case));
        reads.and_then(|reads| reads).map_err(|error| format!("the reference failed: {error}"))
    }

    /// Shrinks a failing case to the smallest one that still fails, and reports it.
    fn alone(&self, tree: &mut impl ValueTree<Value = Case<A>>, together: String) -> Result<(), String> {
        let fails = |case: Case<A>| self.batch(&[case]).pop().and_then(Result::err);
        let Some(mut error) = fails(tree.current()) else {
            return Err(self.report(&tree.current(), &format!("{together}\n(alone, the case passes)")));
        };
        let mut smallest = tree.current();
        let mut simpler = tree.simplify();
        for _ in 0..MAX_SHRINKS {
            if !simpler {
                break;
            }
            let case = tree.current();
            simpler = match fails(case.clone()) {
                Some(found) => {
                    (error, smallest) = (found, case);
                    tree.simplify()
                }
                None => tree.complicate(),
            };
        }
        Err(self.report(&smallest, &error))
    }

    fn report(&self, case: &Case<A>, error: &str) -> String {
        let seed = seed();
        format!("{} with PROPTEST_RNG_SEED={seed} PROPTEST_CASES={}\n{case:?}\n{error}", self.method, cases())
    }
}

/// The largest number of shrinking steps; each compiles a program.
const MAX_SHRINKS: usize = 400;

fn runner(method: &str, program: usize) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed().to_le_bytes());
    bytes[8..12].copy_from_slice(&(program as u32).to_le_bytes());
    for (byte, letter) in bytes[12..].iter_mut().zip(method.bytes()) {
        *byte = letter;
    }
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Silences the messages of panics inside [`catch_panic`]: they are test results.
pub fn silence_caught_panics() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !QUIET.get() {
            loud(panic);
        }
    }));
}

fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(false);
    result.map_err(|panic| format!("panicked: {}", message(panic.as_ref())))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").to_string()
}
