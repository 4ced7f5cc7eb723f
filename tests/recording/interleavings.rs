//! What a program is does not depend on how threads interleave: random recordings of one to four threads, run in forced
//! orders on real threads, give the programs and the values that one thread gives which runs the same scripts in turn.
//!
//! A script fixes what a program's author fixes: what each thread records, and in which order the cuts of a trace come (its
//! owner's, and the uses of its tensors by other threads). Everything else is left to the schedule: whether a use by another
//! thread comes early or late in its owner's recording, and when any thread drops what.

use crate::common;

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_tpu::{Stream, Tpu, TpuDevice, TpuOptions, mark_step, program_keys};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

type B = Tpu<f32>;
type Value = Tensor<B, 1>;

/// The schedules that are tried of each script.
const SCHEDULES: usize = 20;

fn device() -> TpuDevice {
    common::interpreter_with("many programs", TpuOptions::training().cache_entries(10_000))
}

/// One thing that a thread does. Variables are handles, each held by one thread.
#[derive(Clone, Copy, Debug)]
enum Action {
    Create {
        to: usize,
    },
    Unary {
        of: usize,
        to: usize,
    },
    Add {
        lhs: usize,
        rhs: usize,
        to: usize,
    },
    /// Hands a second handle to another thread, which holds it as `to`.
    Share {
        of: usize,
        to: usize,
    },
    Drop {
        of: usize,
    },
    Read {
        of: usize,
    },
    MarkStep,
}

/// An action with its thread and the traces that it cuts.
#[derive(Clone, Debug)]
struct Step {
    thread: usize,
    action: Action,
    cuts: Vec<usize>,
    /// The steps that must come before, besides the thread's own earlier ones and earlier cuts of the same traces.
    after: Vec<usize>,
}

/// A handle as the generator sees it.
#[derive(Clone, Copy)]
struct Variable {
    holder: usize,
    /// The thread that recorded the tensor; none for what came from the host.
    origin: Option<usize>,
    /// The step that handed it over.
    shared_by: Option<usize>,
    held: bool,
}

#[derive(Clone, Debug)]
struct Script {
    threads: usize,
    steps: Vec<Step>,
}

impl Script {
    /// A script of up to `choices.len()` random steps, after which every thread reads and drops what it holds.
    fn new(threads: usize, choices: &[(u8, u8, u8, u8)]) -> Self {
        let mut writer = Writer { script: Self { threads, steps: Vec::new() }, variables: Vec::new() };
        (0..threads).for_each(|thread| writer.create(thread));
        for &(thread, kind, a, b) in choices {
            writer.choose(usize::from(thread) % threads, kind, usize::from(a), usize::from(b));
        }
        for thread in 0..threads {
            for of in writer.held_by(thread) {
                writer.read(thread, of);
            }
            for of in writer.held_by(thread) {
                writer.drop(thread, of);
            }
        }
        writer.script
    }

    /// The steps in an order that keeps each thread's, and each trace's cuts, as they are.
    fn schedule(&self, mut seed: u64) -> Vec<usize> {
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); self.threads];
        self.steps.iter().enumerate().rev().for_each(|(i, step)| next[step.thread].push(i));
        let mut cuts: Vec<Vec<usize>> = vec![Vec::new(); self.threads];
        for (i, step) in self.steps.iter().enumerate().rev() {
            step.cuts.iter().for_each(|&trace| cuts[trace].push(i));
        }
        let (mut order, mut done) = (Vec::new(), vec![false; self.steps.len()]);
        while order.len() < self.steps.len() {
            let ready: Vec<usize> = next.iter().filter_map(|steps| steps.last().copied()).collect();
            let may_run = |&i: &usize| {
                let step = &self.steps[i];
                step.after.iter().all(|&before| done[before]) && step.cuts.iter().all(|&t| cuts[t].last() == Some(&i))
            };
            let ready: Vec<usize> = ready.into_iter().filter(may_run).collect();
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let chosen = ready[(seed >> 33) as usize % ready.len()];
            let step = &self.steps[chosen];
            next[step.thread].pop();
            step.cuts.iter().for_each(|&trace| {
                cuts[trace].pop();
            });
            done[chosen] = true;
            order.push(chosen);
        }
        order
    }
}

/// Writes a script, and keeps track of who holds what.
struct Writer {
    script: Script,
    variables: Vec<Variable>,
}

impl Writer {
    fn held_by(&self, thread: usize) -> Vec<usize> {
        let held = self.variables.iter().enumerate().filter(|(_, v)| v.held && v.holder == thread);
        held.map(|(i, _)| i).collect()
    }

    fn choose(&mut self, thread: usize, kind: u8, a: usize, b: usize) {
        let held = self.held_by(thread);
        if held.is_empty() {
            return self.create(thread);
        }
        let (of, other) = (held[a % held.len()], held[b % held.len()]);
        match kind % 16 {
            0 => self.create(thread),
            1..=4 => self.record(thread, &[of], |to| Action::Unary { of, to }),
            5..=8 => self.record(thread, &[of, other], |to| Action::Add { lhs: of, rhs: other, to }),
            9 | 10 => self.share(thread, of, b),
            11..=13 => self.drop(thread, of),
            14 => self.read(thread, of),
            _ => self.push(thread, Action::MarkStep, vec![thread], &[]),
        }
    }

    fn push(&mut self, thread: usize, action: Action, cuts: Vec<usize>, uses: &[usize]) {
        let after = uses.iter().filter_map(|&of| self.variables[of].shared_by).collect();
        self.script.steps.push(Step { thread, action, cuts, after });
    }

    fn new_variable(&mut self, holder: usize, origin: Option<usize>, shared_by: Option<usize>) -> usize {
        self.variables.push(Variable { holder, origin, shared_by, held: true });
        self.variables.len() - 1
    }

    fn create(&mut self, thread: usize) {
        let to = self.new_variable(thread, None, None);
        self.push(thread, Action::Create { to }, Vec::new(), &[]);
    }

    /// The other threads' traces that a use of these variables cuts.
    fn foreign(&self, thread: usize, uses: &[usize]) -> Vec<usize> {
        let mut traces: Vec<usize> = uses.iter().filter_map(|&of| self.variables[of].origin).collect();
        traces.retain(|&trace| trace != thread);
        traces.sort_unstable();
        traces.dedup();
        traces
    }

    fn record(&mut self, thread: usize, uses: &[usize], action: impl FnOnce(usize) -> Action) {
        let cuts = self.foreign(thread, uses);
        let to = self.new_variable(thread, Some(thread), None);
        self.push(thread, action(to), cuts, uses);
    }

    fn share(&mut self, thread: usize, of: usize, with: usize) {
        let step = self.script.steps.len();
        let to = self.new_variable(with % self.script.threads, self.variables[of].origin, Some(step));
        self.push(thread, Action::Share { of, to }, Vec::new(), &[of]);
    }

    fn drop(&mut self, thread: usize, of: usize) {
        self.variables[of].held = false;
        self.push(thread, Action::Drop { of }, Vec::new(), &[of]);
    }

    fn read(&mut self, thread: usize, of: usize) {
        let own = self.variables[of].origin == Some(thread);
        let cuts = if own { vec![thread] } else { self.foreign(thread, &[of]) };
        self.push(thread, Action::Read { of }, cuts, &[of]);
    }
}

/// The handles of a run and the values that it read, by step.
#[derive(Default)]
struct Run {
    handles: Mutex<HashMap<usize, Value>>,
    values: Mutex<BTreeMap<usize, Vec<f32>>>,
}

impl Run {
    fn handle(&self, of: usize) -> Value {
        self.handles.lock().unwrap()[&of].clone()
    }

    fn hold(&self, to: usize, value: Value) {
        self.handles.lock().unwrap().insert(to, value);
    }

    /// Does one step in the calling thread's stream.
    fn act(&self, number: usize, action: Action) {
        match action {
            Action::Create { to } => {
                self.hold(to, Value::from_data(TensorData::from([to as f32, 1.0]), &device()));
            }
            Action::Unary { of, to } => self.hold(to, self.handle(of) * 0.5 + to as f32),
            Action::Add { lhs, rhs, to } => self.hold(to, self.handle(lhs) + self.handle(rhs)),
            Action::Share { of, to } => self.hold(to, self.handle(of)),
            Action::Drop { of } => {
                let handle = self.handles.lock().unwrap().remove(&of);
                drop(handle);
            }
            Action::Read { of } => {
                let value = self.handle(of).into_data().to_vec().expect("f32 data");
                self.values.lock().unwrap().insert(number, value);
            }
            Action::MarkStep => mark_step(&device()),
        }
    }
}

type Outcome = (Vec<u64>, BTreeMap<usize, Vec<f32>>);

/// Runs the steps in an order; `on` runs a closure in a thread's stream, to its end.
fn run(script: &Script, order: &[usize], on: impl Fn(usize, Box<dyn FnOnce() + Send>)) -> Outcome {
    B::memory_cleanup(&device());
    let run = Arc::new(Run::default());
    for &i in order {
        let (run, Step { thread, action, .. }) = (Arc::clone(&run), script.steps[i].clone());
        on(thread, Box::new(move || run.act(i, action)));
    }
    let values = std::mem::take(&mut *run.values.lock().unwrap());
    (program_keys(&device()), values)
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that do one job at a time, when they are told to.
struct Workers {
    jobs: Vec<Sender<Job>>,
    done: Receiver<std::thread::Result<()>>,
}

impl Workers {
    fn new(threads: usize) -> Self {
        let (finished, done) = channel();
        let start = |_| {
            let (jobs, queue) = channel::<Job>();
            let finished = finished.clone();
            std::thread::spawn(move || {
                for job in queue {
                    let done = catch_unwind(AssertUnwindSafe(job));
                    finished.send(done).expect("the test waits");
                }
            });
            jobs
        };
        Self { jobs: (0..threads).map(start).collect(), done }
    }

    fn run(&self, thread: usize, job: Job) {
        self.jobs[thread].send(job).expect("the worker lives");
        if let Err(panic) = self.done.recv().expect("a worker lives") {
            resume_unwind(panic);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2_000, ..common::cases(60) })]

    /// 60 scripts in 20 orders each; `PROPTEST_CASES` sets another number of scripts.
    #[test]
    fn threads_give_the_programs_and_values_of_one(
        threads in 1usize..=4,
        choices in prop::collection::vec(any::<(u8, u8, u8, u8)>(), 4..40),
        seed in any::<u64>(),
    ) {
        let _alone = common::alone();
        let script = Script::new(threads, &choices);
        let (streams, workers) = ((0..threads).map(|_| Stream::new()).collect::<Vec<_>>(), Workers::new(threads));
        let in_turn: Vec<usize> = (0..script.steps.len()).collect();
        let expected = run(&script, &in_turn, |thread, job| streams[thread].run(job));
        for schedule in 0..SCHEDULES as u64 {
            let order = script.schedule(seed ^ schedule.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let found = run(&script, &order, |thread, job| workers.run(thread, job));
            prop_assert_eq!(&found.1, &expected.1, "values in the order {:?}", order);
            prop_assert_eq!(&found.0, &expected.0, "programs in the order {:?} of {:#?}", order, script.steps);
        }
    }
}
