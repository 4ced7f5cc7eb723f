//! Runs that lose a process end with the cause, and go on with another number of processes: each sample is seen once.
//!
//! `ELASTIC_KILLS` sets the number of kills.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a child process tells its parent what it did")]

use crate::common;
use crate::shared_checkpoints::Shared;

use burn::nn::LinearConfig;
use burn::prelude::*;
use burn_tpu::{Tpu, TpuDevice};
use burn_tpu_train::{Checkpoint, Checkpointer, Samples};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The samples of all processes in a step; the steps from one checkpoint to the next.
const BATCH: usize = 12;
const INTERVAL: u64 = 2;

/// Plays a process.
#[test]
fn child() {
    if common::child::scenario().is_none() {
        return;
    }
    let last: u64 = std::env::var("LAST").expect("it is set").parse().expect("a number");
    let folder = PathBuf::from(std::env::var("FOLDER").expect("it is set"));
    if let Err(error) = trains(folder, last) {
        println!("error: {}", error.to_string().replace('\n', " "));
        std::process::exit(1);
    }
}

/// Says the samples of each step, and saves at some.
fn trains(folder: PathBuf, last: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut checkpoints = Checkpointer::open(folder)?;
    // The same values in all processes.
    Tpu::<f32>::seed(&TpuDevice::ndarray(), 1);
    let model = LinearConfig::new(64, 64).init::<Tpu<f32>>(&TpuDevice::ndarray());
    let (mut step, mut samples) = (0, Samples::default());
    if let Some(saved) = checkpoints.restore()? {
        (step, samples) = (saved.step(), saved.value("samples")?);
    }
    println!("begins: {step}");
    while step < last {
        let mine = samples.next(BATCH)?;
        step += 1;
        println!("step: {step} {} {}", mine.start, mine.end);
        if step % INTERVAL == 0 {
            checkpoints.save(Checkpoint::new(step).model("model", &model).value("samples", &samples))?;
        }
    }
    Ok(checkpoints.wait()?)
}

/// What the processes of one start said.
#[derive(Default)]
struct Start {
    begins: u64,
    /// The samples by step.
    samples: BTreeMap<u64, Vec<u64>>,
    errors: Vec<String>,
}

impl Start {
    fn hear(&mut self, text: &str) {
        // The last line may be half a line.
        for line in text[..text.rfind('\n').map_or(0, |end| end + 1)].lines() {
            match line.split_once(": ") {
                Some(("begins", step)) => self.begins = step.parse().expect("a number"),
                Some(("error", error)) => self.errors.push(error.to_owned()),
                Some(("step", numbers)) => {
                    let numbers: Vec<u64> = numbers.split(' ').map(|text| text.parse().expect("a number")).collect();
                    self.samples.entry(numbers[0]).or_default().extend(numbers[1]..numbers[2]);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_run_that_loses_processes_goes_on_with_more_or_fewer_and_sees_each_sample_once() {
    let kills = std::env::var("ELASTIC_KILLS").ok().map_or(3, |kills| kills.parse::<usize>().expect("a number"));
    let (shared, mut starts, mut slowest) = (Shared::new(), Vec::<Start>::new(), Duration::ZERO);
    let mut last = 0;
    for kill in 0..=kills {
        let (count, random) = ([4, 2, 6, 3, 1][kill % 5], (kill + 1) * 7919);
        // The last start is not killed; the others do not come to the end.
        let newest = Checkpointer::open(shared.folder.path()).expect("a folder").steps().expect("a folder");
        last = newest.last().map_or(0, |step| step + 2 * INTERVAL);
        let end = if kill == kills { last } else { u64::MAX };
        let limit = |_: usize, command: &mut std::process::Command| {
            command.env("LAST", end.to_string());
        };
        let mut group = shared.start(module_path!(), "trains", count, 2, limit);
        let mut outputs: Vec<_> =
            group.children.iter_mut().map(|child| BufReader::new(child.stdout.take().expect("a pipe"))).collect();
        let mut start = Start::default();
        if kill < kills {
            let steps = 1 + random % 5;
            let mut text = String::new();
            while text.lines().filter(|line| line.starts_with("step: ")).count() < steps {
                assert_ne!(outputs[0].read_line(&mut text).expect("text"), 0, "it ended: {text}");
            }
            start.hear(&text);
            // Process 0 too: it serves nothing here.
            group.children[random / 7 % count].kill().expect("it runs");
        }
        let killed = Instant::now();
        for output in &mut outputs {
            let mut text = String::new();
            output.read_to_string(&mut text).expect("text");
            start.hear(&text);
        }
        for child in &mut group.children {
            assert_eq!(child.wait().expect("it ran").success(), kill == kills);
        }
        if kill < kills {
            slowest = slowest.max(killed.elapsed());
            let named = format!("process {}", random / 7 % count);
            assert_eq!(start.errors.len(), count - 1, "{:?}", start.errors);
            assert!(start.errors.iter().all(|error| error.contains(&named)), "{named}: {:?}", start.errors);
        }
        starts.push(start);
    }
    let mut seen: Vec<u64> = Vec::new();
    let mut lost = 0;
    for (place, start) in starts.iter().enumerate() {
        // What was done after the checkpoint that the next start goes on from is done again.
        let until = starts.get(place + 1).map_or(last, |next| next.begins);
        assert!(until >= start.begins);
        seen.extend(start.samples.range(..=until).flat_map(|(_, samples)| samples));
        lost += start.samples.range(until + 1..).count();
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..last * BATCH as u64).collect::<Vec<_>>());
    eprintln!("{kills} kills: {} samples, {lost} steps taken again, the others ended within {slowest:.1?}", seen.len());
}
