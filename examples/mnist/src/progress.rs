//! The Learner's progress display on lines: on a terminal, one line that is rewritten; elsewhere (a log file, CI),
//! one line per tenth of an epoch.

use crate::curve::Curve;
use burn::data::dataloader::Progress;
use burn::train::metric::{MetricDefinition, MetricId};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use std::collections::{BTreeMap, HashMap};
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The splits, and the metric of the learning curve.
const TRAIN: &str = "train";
const TEST: &str = "test";
const LOSS: &str = "Loss";

/// The interval between two redraws of a terminal line.
const REDRAW: Duration = Duration::from_millis(100);

/// The means of the current pass over a split: metric name to (sum, count).
type Means = BTreeMap<String, (f64, usize)>;

/// A renderer for Burn's Learner that prints plain lines.
pub struct LineRenderer {
    names: HashMap<MetricId, String>,
    pass: Pass,
    means: Means,
    followed: Followed,
    terminal: bool,
    drawn: Instant,
    tenth: usize,
    open_line: bool,
}

/// The epoch and split of the means.
#[derive(Clone, Copy, Default, PartialEq)]
struct Pass {
    split: &'static str,
    epoch: usize,
}

/// What a run has shown, to be read after it: a handle to the training means of the newest epoch, and to all losses.
#[derive(Clone, Default)]
pub struct Followed(Arc<Mutex<(Means, Curve)>>);

impl Followed {
    /// Returns the training mean of a metric over the newest epoch, `None` if it was never updated.
    pub fn training_mean(&self, metric: &str) -> Option<f64> {
        mean(&self.locked().0, metric)
    }

    /// Returns the losses so far.
    pub fn curve(&self) -> Curve {
        self.locked().1.clone()
    }

    fn locked(&self) -> MutexGuard<'_, (Means, Curve)> {
        self.0.lock().expect("no code panics while it holds this lock")
    }
}

fn mean(means: &Means, metric: &str) -> Option<f64> {
    means.get(metric).map(|(sum, count)| sum / *count as f64)
}

impl LineRenderer {
    /// Creates a renderer for stdout.
    pub fn new() -> Self {
        Self {
            names: HashMap::new(),
            pass: Pass::default(),
            means: Means::new(),
            followed: Followed::default(),
            terminal: std::io::stdout().is_terminal(),
            drawn: Instant::now(),
            tenth: 0,
            open_line: false,
        }
    }

    /// Returns a handle to what the run shows, which stays valid after the renderer is dropped.
    pub fn followed(&self) -> Followed {
        self.followed.clone()
    }

    /// Adds a metric's newest value to the current pass. Values of a batch arrive before its progress does, so a pass
    /// ends when its last progress has been drawn.
    fn update(&mut self, split: &str, state: MetricState) {
        let MetricState::Numeric(entry, value) = state else { return };
        let name = self.names.get(&entry.metric_id).cloned().unwrap_or_default();
        if split == TRAIN && name == LOSS {
            self.followed.locked().1.training.push(value.current());
        }
        let (sum, count) = self.means.entry(name).or_default();
        *sum += value.current();
        *count += 1;
    }

    fn render(&mut self, split: &'static str, item: &TrainingProgress) {
        let Some(progress) = &item.progress else { return };
        let pass = Pass { split, epoch: item.global_progress.items_processed };
        if pass != self.pass {
            (self.pass, self.tenth) = (pass, 0);
        }
        if split == TRAIN {
            self.followed.locked().0.clone_from(&self.means);
        }
        let done = progress.items_processed >= progress.items_total;
        if self.is_due(progress, done) {
            self.draw(&line(pass, item.global_progress.items_total, progress, &self.means), done);
        }
        if done {
            if let Some(loss) = mean(&self.means, LOSS).filter(|_| split == TEST) {
                let curve = &mut self.followed.locked().1;
                curve.test.push((curve.training.len(), loss));
            }
            self.means.clear();
        }
    }

    fn is_due(&mut self, progress: &Progress, done: bool) -> bool {
        if self.terminal {
            return done || self.drawn.elapsed() >= REDRAW;
        }
        let tenth = progress.items_processed * 10 / progress.items_total.max(1);
        let passed = tenth > self.tenth;
        self.tenth = tenth;
        done || passed
    }

    fn draw(&mut self, line: &str, done: bool) {
        self.drawn = Instant::now();
        if !self.terminal {
            println!("{line}");
            return;
        }
        print!("\r\x1b[2K{line}");
        if done {
            println!();
        }
        self.open_line = !done;
        // A failed write to the display must not stop training.
        let _ = std::io::stdout().flush();
    }

    fn close_line(&mut self) {
        if std::mem::take(&mut self.open_line) {
            println!();
        }
    }
}

fn line(pass: Pass, epochs: usize, progress: &Progress, means: &Means) -> String {
    let Progress { items_processed, items_total } = progress;
    let percent = items_processed * 100 / (*items_total).max(1);
    let bar = format!("{:<20}", "#".repeat(percent / 5));
    let Pass { split, epoch } = pass;
    let mut line =
        format!("epoch {epoch}/{epochs} {split:<5} [{bar}] {percent:>3} % {items_processed:>6}/{items_total}");
    for (name, (sum, count)) in means {
        line += &format!("  {} {:.4}", name.to_lowercase(), sum / *count as f64);
    }
    line
}

impl MetricsRendererTraining for LineRenderer {
    fn update_train(&mut self, state: MetricState) {
        self.update(TRAIN, state);
    }

    fn update_valid(&mut self, state: MetricState) {
        self.update(TEST, state);
    }

    fn render_train(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        self.render(TRAIN, &item);
    }

    fn render_valid(&mut self, item: TrainingProgress, _: Vec<ProgressType>) {
        self.render(TEST, &item);
    }

    fn on_train_end(&mut self, _: Option<burn::train::LearnerSummary>) -> Result<(), Box<dyn std::error::Error>> {
        self.close_line();
        Ok(())
    }
}

impl MetricsRendererEvaluation for LineRenderer {
    fn update_test(&mut self, _: EvaluationName, state: MetricState) {
        self.update(TEST, state);
    }

    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for LineRenderer {
    fn manual_close(&mut self) {
        self.close_line();
    }

    fn register_metric(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id, definition.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_epoch_split_percentage_and_means() {
        let means = Means::from([("Loss".to_owned(), (3.0, 2))]);
        let line = line(Pass { split: "train", epoch: 2 }, 3, &Progress::new(30, 60), &means);
        assert_eq!(line, "epoch 2/3 train [##########          ]  50 %     30/60  loss 1.5000");
    }

    #[test]
    fn without_a_terminal_a_line_is_due_once_per_tenth() {
        let mut renderer = LineRenderer::new();
        renderer.terminal = false;
        let due: Vec<bool> = (1..=20).map(|n| renderer.is_due(&Progress::new(n, 20), n == 20)).collect();
        assert_eq!(due.iter().filter(|due| **due).count(), 10);
    }
}
