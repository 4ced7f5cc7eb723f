//! What the lines of a journal add up to.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The seconds of a start that were spent in each part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Seconds {
    pub(super) setup: f64,
    pub(super) restore: f64,
    pub(super) data: f64,
    pub(super) compile: f64,
    pub(super) step: f64,
    pub(super) save: f64,
    pub(super) evaluation: f64,
    pub(super) other: f64,
}

/// A start of a run at a moment: a line of its journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// When it began, in seconds since 1970.
    pub(super) start: f64,
    /// The seconds since then.
    pub(super) at: f64,
    /// The first step that it took, and the one that it takes now or next.
    pub(super) first: Option<u64>,
    pub(super) next: u64,
    pub(super) seconds: Seconds,
}

/// What a step does, and what the hardware of all processes can do and costs. What is zero is not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// The tokens of a step.
    pub tokens: f64,
    /// The floating-point operations that a step needs: `6 * parameters * tokens`, and those of attention.
    pub flops: f64,
    /// The peak rate of all devices, in operations per second: `burn_tpu::fit::Specs` has that of each TPU.
    pub peak_flops_per_second: f64,
    /// The price of all devices per hour, in US dollars.
    pub usd_per_hour: f64,
}

/// Where the time of a run went, over all of its starts. The parts add up to [`wall`](Self::wall).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GoodputReport {
    /// The time since the first start began.
    pub wall: Duration,
    /// Steps that count: the goodput.
    pub step: Duration,
    /// The compiler, in whatever phase.
    pub compile: Duration,
    /// [`Phase::Setup`](crate::Phase::Setup).
    pub setup: Duration,
    /// [`Phase::Restore`](crate::Phase::Restore).
    pub restore: Duration,
    /// [`Phase::Data`](crate::Phase::Data).
    pub data: Duration,
    /// [`Phase::Save`](crate::Phase::Save).
    pub save: Duration,
    /// [`Phase::Evaluation`](crate::Phase::Evaluation).
    pub evaluation: Duration,
    /// [`Phase::Other`](crate::Phase::Other).
    pub other: Duration,
    /// Steps that were taken again, since a start ended after them and had not saved.
    pub lost: Duration,
    /// From the last line of a start to the begin of the next one.
    pub down: Duration,
    /// The number of steps that count.
    pub steps: u64,
    /// The number of steps that were taken again; one that was not ended is none.
    pub lost_steps: u64,
    /// The number of starts.
    pub starts: usize,
    /// What was given.
    pub work: Work,
}

impl GoodputReport {
    /// Adds up the lines of starts, which are together and in their order, and the one that runs.
    pub(super) fn of(lines: &[Entry], now: Option<&Entry>, work: Work) -> Self {
        let mut starts: Vec<&[Entry]> = lines.chunk_by(|a, b| a.start == b.start).collect();
        starts.extend(now.map(std::slice::from_ref));
        let mut report = Self { starts: starts.len(), work, ..Self::default() };
        // The least step that a later start began with: those from it on were taken again.
        let mut again = u64::MAX;
        let mut later_begin: Option<f64> = None;
        for lines in starts.iter().rev() {
            let Some(last) = lines.last() else { continue };
            report.add(lines, last, again);
            if let Some(first) = last.first {
                again = again.min(first);
            }
            if let Some(begin) = later_begin {
                report.down += seconds(begin - last.start - last.at);
            }
            later_begin = Some(last.start);
        }
        if let (Some([first, ..]), Some([.., last])) = (starts.first(), starts.last()) {
            report.wall = seconds(last.start + last.at - first.start);
        }
        report
    }

    /// Adds a start, of whose steps those from `again` on do not count.
    fn add(&mut self, lines: &[Entry], last: &Entry, again: u64) {
        let spent = &last.seconds;
        let counts = step_seconds_before(lines, again);
        self.step += seconds(counts);
        self.lost += seconds(spent.step - counts);
        let parts = [
            (&mut self.compile, spent.compile),
            (&mut self.setup, spent.setup),
            (&mut self.restore, spent.restore),
            (&mut self.data, spent.data),
            (&mut self.save, spent.save),
            (&mut self.evaluation, spent.evaluation),
            (&mut self.other, spent.other),
        ];
        for (part, time) in parts {
            *part += seconds(time);
        }
        let first = last.first.unwrap_or(last.next);
        let end = again.clamp(first, last.next);
        self.steps += end - first;
        self.lost_steps += last.next - end;
    }

    /// Returns the part of the wall clock that was steps that count, from 0 to 1.
    pub fn goodput(&self) -> f64 {
        ratio(self.step.as_secs_f64(), self.wall.as_secs_f64())
    }

    /// Returns the tokens of the steps that count, per second of the wall clock; `None` without [`Work::tokens`].
    pub fn tokens_per_second(&self) -> Option<f64> {
        let tokens = given(self.work.tokens)? * self.steps as f64;
        Some(ratio(tokens, self.wall.as_secs_f64()))
    }

    /// Returns the model's FLOPs utilization while steps ran ([Chowdhery et al.](https://arxiv.org/abs/2204.02311),
    /// appendix B): the operations that the steps needed, over what the hardware could have done in their time. `None`
    /// without [`Work::flops`] and [`Work::peak_flops_per_second`].
    pub fn mfu(&self) -> Option<f64> {
        let flops = given(self.work.flops)? * self.steps as f64;
        Some(ratio(flops, self.step.as_secs_f64() * given(self.work.peak_flops_per_second)?))
    }

    /// Returns the price of the wall clock in US dollars; `None` without [`Work::usd_per_hour`].
    pub fn usd(&self) -> Option<f64> {
        Some(self.wall.as_secs_f64() / 3600.0 * given(self.work.usd_per_hour)?)
    }

    /// The parts that add up to the wall clock, by name.
    fn parts(&self) -> [(&'static str, Duration); 10] {
        [
            ("step", self.step),
            ("compile", self.compile),
            ("setup", self.setup),
            ("restore", self.restore),
            ("data", self.data),
            ("save", self.save),
            ("evaluation", self.evaluation),
            ("other", self.other),
            ("lost", self.lost),
            ("down", self.down),
        ]
    }

    /// Sets the gauges of the crate `metrics`.
    pub(super) fn set_gauges(&self) {
        for (part, time) in self.parts() {
            metrics::gauge!("burn_tpu_run_seconds", "part" => part).set(time.as_secs_f64());
        }
        metrics::gauge!("burn_tpu_run_steps").set(self.steps as f64);
        metrics::gauge!("burn_tpu_run_goodput").set(self.goodput());
        if let Some(rate) = self.tokens_per_second() {
            metrics::gauge!("burn_tpu_run_tokens_per_second").set(rate);
        }
        if let Some(mfu) = self.mfu() {
            metrics::gauge!("burn_tpu_run_mfu").set(mfu);
        }
        if let Some(usd) = self.usd() {
            metrics::gauge!("burn_tpu_run_usd").set(usd);
        }
    }
}

impl fmt::Display for GoodputReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wall, steps, lost_steps, starts, .. } = self;
        let wall = wall.as_secs_f64();
        write!(f, "goodput {:.1} % of {wall:.1} s: {steps} steps", 100.0 * self.goodput())?;
        if *starts > 1 {
            write!(f, ", {lost_steps} taken again, {starts} starts")?;
        }
        for (part, time) in self.parts().into_iter().filter(|(_, time)| !time.is_zero()) {
            let time = time.as_secs_f64();
            write!(f, "\n  {part:<10} {time:>10.1} s {:>5.1} %", 100.0 * ratio(time, wall))?;
        }
        if let Some(rate) = self.tokens_per_second() {
            write!(f, "\n  {rate:.0} tokens/s of wall clock")?;
        }
        if let Some(mfu) = self.mfu() {
            write!(f, "\n  MFU {:.1} % while steps ran", 100.0 * mfu)?;
        }
        if let Some(usd) = self.usd() {
            write!(f, "\n  {usd:.2} $")?;
        }
        Ok(())
    }
}

/// Returns the seconds that a start spent in its steps before one. Between two lines, steps are taken to be equally
/// long. What follows the first line at that step was spent in it, and it did not end.
fn step_seconds_before(lines: &[Entry], step: u64) -> f64 {
    let (mut before, mut spent) = (None, 0.0);
    for line in lines {
        let next = line.next.max(line.first.unwrap_or(0));
        if next >= step {
            let (from, to) = (before.unwrap_or(line.first.unwrap_or(step)).min(step), next);
            return spent + (line.seconds.step - spent) * ratio((step - from) as f64, (to - from) as f64);
        }
        if line.first.is_some() {
            before = Some(next);
        }
        spent = line.seconds.step;
    }
    spent
}

fn given(number: f64) -> Option<f64> {
    (number > 0.0).then_some(number)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}
