//! Journals whose sums are known, and broken ones.

use super::account::{Entry, Seconds};
use super::*;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A line of the start at a time, with seconds of setup, steps and savings.
fn line(start: f64, (first, next): (Option<u64>, u64), [setup, step, save]: [f64; 3]) -> Entry {
    let seconds = Seconds { setup, step, save, ..Seconds::default() };
    Entry { start, at: setup + step + save, first, next, seconds }
}

fn sum(report: &GoodputReport) -> f64 {
    let GoodputReport { step, compile, setup, restore, data, save, evaluation, other, lost, down, .. } = *report;
    [step, compile, setup, restore, data, save, evaluation, other, lost, down].iter().map(Duration::as_secs_f64).sum()
}

#[test]
fn steps_that_a_later_start_took_again_are_lost() {
    let entries = [
        line(1000.0, (None, 0), [0.0; 3]),
        // Saved before step 10, and killed in step 13 or after it.
        line(1000.0, (Some(0), 10), [5.0, 20.0, 1.0]),
        line(1000.0, (Some(0), 13), [5.0, 27.0, 1.0]),
        // A start that came to no step.
        line(1050.0, (None, 0), [4.0, 0.0, 0.0]),
        line(1060.0, (Some(10), 10), [5.0, 0.0, 0.0]),
        line(1060.0, (Some(10), 30), [5.0, 40.0, 0.0]),
    ];
    let report = GoodputReport::of(&entries, None, Work::default());
    assert_eq!((report.starts, report.steps, report.lost_steps), (3, 30, 3));
    assert_eq!((report.step, report.lost), (Duration::from_secs(60), Duration::from_secs(7)));
    // From 1033 to 1050 and from 1054 to 1060.
    assert_eq!((report.down, report.wall), (Duration::from_secs(23), Duration::from_secs(105)));
    assert_eq!(sum(&report), 105.0);
    assert_eq!(report.goodput(), 60.0 / 105.0);
}

#[test]
fn between_two_lines_steps_are_equally_long() {
    let entries = [
        line(0.0, (Some(4), 4), [1.0, 0.0, 0.0]),
        line(0.0, (Some(4), 14), [1.0, 50.0, 0.0]),
        line(100.0, (Some(6), 7), [1.0, 5.0, 0.0]),
        // The checkpoint after step 5 was damaged: steps 4 and 5 are taken again too.
        line(200.0, (Some(4), 5), [1.0, 5.0, 0.0]),
    ];
    let lost = |entries| GoodputReport::of(entries, None, Work::default()).lost.as_secs();
    assert_eq!(lost(&entries[..3]), 40);
    assert_eq!(lost(&entries), 55);
    let report = GoodputReport::of(&entries, None, Work::default());
    assert_eq!((report.steps, report.lost_steps), (1, 11));
}

#[test]
fn rates_count_what_counts() {
    let work = Work { tokens: 1000.0, flops: 6e12, peak_flops_per_second: 1e13, usd_per_hour: 36.0 };
    let report = GoodputReport::of(&[], Some(&line(0.0, (Some(0), 10), [20.0, 12.0, 8.0])), work);
    assert_eq!((report.tokens_per_second(), report.mfu(), report.usd()), (Some(250.0), Some(0.5), Some(0.4)));
    let text = report.to_string();
    assert!(text.starts_with("goodput 30.0 % of 40.0 s: 10 steps\n  step             12.0 s  30.0 %\n"), "{text}");
    assert!(text.ends_with("  250 tokens/s of wall clock\n  MFU 50.0 % while steps ran\n  0.40 $"), "{text}");
    let gauges = Gauges::default();
    metrics::with_local_recorder(&gauges, || report.set_gauges());
    let gauges = gauges.0.into_inner().unwrap();
    let value = |name: &str| f64::from_bits(gauges[name].load(Ordering::Relaxed));
    let names = ["seconds step", "seconds save", "steps", "goodput", "tokens_per_second", "mfu", "usd"];
    let values = names.map(|name| value(&format!("burn_tpu_run_{name}")));
    assert_eq!(values, [12.0, 8.0, 10.0, 0.3, 250.0, 0.5, 0.4]);
    let report = GoodputReport::of(&[], Some(&line(0.0, (None, 0), [20.0, 0.0, 0.0])), Work::default());
    assert_eq!((report.tokens_per_second(), report.mfu(), report.usd(), report.goodput()), (None, None, None, 0.0));
}

#[test]
fn a_line_that_was_cut_is_left_out_and_the_next_begins_on_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs/7/goodput.jsonl");
    let mut journal = Journal::open(&path).unwrap();
    let entries = [line(1.0, (None, 0), [0.0; 3]), line(1.0, (Some(0), 3), [1.0, 2.0, 0.0])];
    for entry in &entries {
        journal.write(entry).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 20]).unwrap();
    let mut journal = Journal::open(&path).unwrap();
    assert_eq!(journal.earlier, entries[..1]);
    journal.write(&entries[1]).unwrap();
    assert_eq!(Journal::open(&path).unwrap().earlier, entries);
    let error = Journal::open(folder.path()).err().unwrap().to_string();
    assert!(error.contains("the journal `") && error.contains(&*folder.path().to_string_lossy()), "{error}");
}

#[test]
fn each_moment_is_in_one_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("goodput.jsonl");
    for (begin, end) in [(0, 3), (2, 5)] {
        let mut goodput = Goodput::open(&path, &TpuDevice::ndarray()).unwrap();
        goodput.enter(Phase::Restore).unwrap();
        for step in begin..end {
            goodput.enter(Phase::Data).unwrap();
            goodput.step(step).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            if step == begin + 1 {
                goodput.enter(Phase::Save).unwrap();
            }
        }
        goodput.enter(Phase::Evaluation).unwrap();
    }
    let goodput = Goodput::open(&path, &TpuDevice::ndarray()).unwrap();
    let report = goodput.report();
    assert_eq!((report.starts, report.steps, report.lost_steps), (3, 5, 1));
    assert!(report.step >= Duration::from_millis(10) && report.lost >= Duration::from_millis(2), "{report}");
    assert!((sum(&report) - report.wall.as_secs_f64()).abs() < 1e-3, "{report:?}");
}

/// What an exporter sees: gauges by name and labels.
#[derive(Default)]
struct Gauges(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl metrics::Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let names: Vec<_> = std::iter::once(key.name()).chain(key.labels().map(|label| label.value())).collect();
        let mut gauges = self.0.lock().unwrap();
        Gauge::from_arc(Arc::clone(gauges.entry(names.join(" ")).or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
