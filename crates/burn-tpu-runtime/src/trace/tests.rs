//! Traces on an engine that refuses, fails and panics when it is told to.

use crate::engine::{Arguments, Engine, Executable, Execution, HostBytes, SharedBuffer, open_ndarray};
use crate::error::{Result, TpuError};
use crate::metrics::CutReason;
use crate::ops::{arithmetic, data};
use crate::runtime::registry;
use crate::{Device, Platform, Stream, Tensor, TpuOptions};
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{DType, Number, Op, Program, Sharding, TensorType};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

/// What the engine does with the programs that it is given.
#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// No program compiles.
    Compile,
    /// Programs fail before they take an argument, as when their scalars cannot be uploaded.
    Upload,
    /// Programs fail after they took their arguments.
    Execution,
    /// The engine panics.
    Panic,
}

/// The interpreter with faults.
struct Faulty {
    inner: Arc<dyn Engine>,
    fault: Arc<Mutex<Fault>>,
    transfers_values: bool,
}

struct FaultyProgram {
    inner: Box<dyn Executable>,
    fault: Arc<Mutex<Fault>>,
}

fn on_purpose() -> TpuError {
    TpuError::Host { reason: "on purpose".into() }
}

impl Engine for Faulty {
    fn describe(&self) -> String {
        "a faulty engine".into()
    }

    fn upload(&self, ty: &TensorType, bytes: HostBytes, sharding: Option<&Sharding>) -> Result<SharedBuffer> {
        self.inner.upload(ty, bytes, sharding)
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        self.inner.download(buffer)
    }

    fn lowers(&self, op: &Op) -> bool {
        self.inner.lowers(op)
    }

    fn transfers_values(&self) -> bool {
        self.transfers_values
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        if *self.fault.lock() == Fault::Compile {
            return Err(on_purpose());
        }
        let inner = self.inner.compile(program)?;
        Ok(Box::new(FaultyProgram { inner, fault: Arc::clone(&self.fault) }))
    }

    fn wait(&self) -> Result<()> {
        self.inner.wait()
    }
}

impl Executable for FaultyProgram {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let fault = *self.fault.lock();
        match fault {
            Fault::None | Fault::Compile => self.inner.execute(arguments, slots),
            Fault::Upload => Err(on_purpose()),
            Fault::Panic => panic!("on purpose"),
            Fault::Execution => {
                arguments.iter_mut().for_each(|argument| drop(argument.take()));
                Err(on_purpose())
            }
        }
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
}

/// A device of its own with a faulty engine.
struct Bench {
    device: Device,
    fault: Arc<Mutex<Fault>>,
}

impl Bench {
    fn new(options: TpuOptions) -> Self {
        Self::open(options, false)
    }

    /// A device to which values are transferred, so that small programs are interpreted at first.
    fn with_transfers(options: TpuOptions) -> Self {
        Self::open(options, true)
    }

    fn open(options: TpuOptions, transfers_values: bool) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1_000);
        let device = Device::new(Platform::NdArray, NEXT.fetch_add(1, Relaxed));
        let fault = Arc::<Mutex<Fault>>::default();
        let inner = open_ndarray();
        registry::start_with(device, options, Arc::new(Faulty { inner, fault: Arc::clone(&fault), transfers_values }));
        Self { device, fault }
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    fn tensor(&self, value: f32) -> Tensor {
        let bytes = value.to_le_bytes().to_vec();
        data::from_bytes("tensor", TensorType::new(DType::F32, [1]), bytes, &self.device)
    }

    /// A value after a number of additions of 1.
    fn count(&self, from: &Tensor, additions: usize) -> Tensor {
        (0..additions).fold(from.clone(), |x, _| add(x, 1.0))
    }
}

fn add(x: Tensor, number: f64) -> Tensor {
    arithmetic::binary_scalar("add", BinaryOp::Add, x, Number::Float(number))
}

fn read(x: &Tensor) -> Result<f32> {
    Ok(f32::from_le_bytes(data::into_bytes(x)?.try_into().expect("one f32")))
}

/// A program that is refused, for whatever reason, takes nothing: the trace stays pending, and the next cut runs it.
#[test]
fn a_refused_program_leaves_the_trace_pending() {
    for fault in [Fault::Compile, Fault::Upload, Fault::Panic] {
        let bench = Bench::new(TpuOptions::training());
        // The only owner of its buffer, as a weight is.
        let weight = add(bench.tensor(1.0), 2.0);
        bench.device.mark_step();
        let updated = add(add(weight, 4.0), 6.0);
        bench.set(fault);
        bench.device.mark_step();
        let error = read(&updated).expect_err("it is refused again").to_string();
        assert!(error.contains(if fault == Fault::Panic { "panicked" } else { "on purpose" }), "{error}");
        assert!(bench.device.sync().is_err());
        bench.set(Fault::None);
        assert_eq!(read(&updated).expect("it runs now"), 13.0);
        assert_eq!(bench.device.metrics().executions, 2);
    }
}

/// What was recorded after a refused step is a program of its own, as if the step had not been refused.
#[test]
fn a_refused_step_keeps_its_end() {
    let run = |refused: bool| {
        let bench = Bench::new(TpuOptions::training());
        let x = bench.tensor(0.0);
        bench.set(if refused { Fault::Compile } else { Fault::None });
        let first = bench.count(&x, 3);
        bench.device.mark_step();
        bench.set(Fault::None);
        let second = bench.count(&first, 5);
        drop(first);
        assert_eq!(read(&second).expect("it runs"), 8.0);
        (bench.device.program_keys(), bench.device.metrics().executions)
    };
    assert_eq!(run(true), run(false));
}

/// A device that is frozen refuses a new program; after that it runs.
#[test]
fn a_frozen_device_loses_nothing() {
    let bench = Bench::new(TpuOptions::training());
    let x = add(bench.tensor(1.0), 1.0);
    bench.device.mark_step();
    bench.device.freeze();
    let y = bench.count(&x, 2);
    drop(x);
    bench.device.mark_step();
    assert!(matches!(read(&y), Err(TpuError::Frozen { .. })));
    bench.device.unfreeze();
    assert_eq!(read(&y).expect("it runs now"), 4.0);
}

/// A refused request that its owner has dropped holds nothing else up.
#[test]
fn a_refused_program_that_nobody_wants_any_more_is_forgotten() {
    let bench = Bench::new(TpuOptions::training());
    let request = |x: &Tensor| add(x.clone(), 1.0);
    let (known, odd) = (bench.tensor(1.0), request(&request(&bench.tensor(1.0))));
    let earlier = Stream::new();
    earlier.run(|| read(&request(&known))).expect("compiled");
    bench.device.freeze();
    assert!(matches!(read(&odd), Err(TpuError::Frozen { .. })));
    let answer = request(&known);
    drop(odd);
    assert_eq!(read(&answer).expect("a known program"), 2.0);
}

#[test]
fn a_program_that_took_its_arguments_and_fails_leaves_its_error_in_its_results() {
    let bench = Bench::new(TpuOptions::training());
    let x = add(bench.tensor(1.0), 1.0);
    bench.set(Fault::Execution);
    bench.device.mark_step();
    bench.set(Fault::None);
    assert!(read(&x).expect_err("it failed").to_string().contains("on purpose"));
    assert!(read(&add(x, 1.0)).is_err());
    assert_eq!(read(&add(bench.tensor(1.0), 1.0)).expect("nothing else fails"), 2.0);
}

/// A stream that uses a tensor of another one, whose program is refused, waits for it.
#[test]
fn a_refused_program_of_another_stream_is_tried_again() {
    let bench = Bench::new(TpuOptions::training());
    let other = Stream::new();
    let batch = other.run(|| add(bench.tensor(1.0), 1.0));
    bench.set(Fault::Compile);
    let (sum, later) = (add(batch.clone(), 5.0), add(batch, 6.0));
    bench.device.mark_step();
    assert!(read(&sum).is_err());
    bench.set(Fault::None);
    assert_eq!((read(&sum).expect("it runs now"), read(&later).expect("this too")), (7.0, 8.0));
}

/// Two streams that use each other's tensors, whose programs were refused, wait for each op alone: not in a circle.
#[test]
fn refused_programs_of_streams_that_use_each_other_are_tried_again() {
    let bench = Bench::new(TpuOptions::training());
    let (a, b) = (Stream::new(), Stream::new());
    let tensor = bench.tensor(1.0);
    bench.set(Fault::Compile);
    let first = a.run(|| add(tensor, 1.0));
    let second = b.run(|| add(first.clone(), 10.0));
    let third = a.run(|| add(second.clone(), 100.0));
    let fourth = b.run(|| add(third.clone(), 1_000.0));
    assert!(a.run(|| read(&third)).is_err());
    bench.set(Fault::None);
    assert_eq!(a.run(|| read(&third)).expect("it runs now"), 112.0);
    assert_eq!(b.run(|| read(&fourth)).expect("this too"), 1_112.0);
    assert_eq!(read(&second).expect("it has run"), 12.0);
}

/// Whether or not another stream had it computed: a read by the owner cuts what the owner recorded.
#[test]
fn a_read_by_the_owner_cuts_by_position_alone() {
    let run = |read_elsewhere: bool| {
        let bench = Bench::new(TpuOptions::training());
        let loss = bench.count(&bench.tensor(0.0), 2);
        if read_elsewhere {
            Stream::new().run(|| read(&loss)).expect("it runs");
        }
        let rest = bench.count(&bench.tensor(1.0), 4);
        read(&loss).expect("it runs");
        let cuts = bench.device.metrics().cuts;
        assert_eq!(cuts.get(&CutReason::Read), Some(&1), "{read_elsewhere}: {cuts:?}");
        read(&rest).expect("it ran");
        assert_eq!(bench.device.metrics().cuts, cuts, "the read of the loss has run the rest too");
    };
    run(true);
    run(false);
}

/// An early and a late read by another stream, with drops in between, give the same programs.
#[test]
fn the_time_of_a_read_by_another_stream_does_not_matter() {
    let run = |early: bool| {
        let bench = Bench::new(TpuOptions::training());
        let (x, other) = (bench.tensor(0.0), Stream::new());
        let loss = bench.count(&x, 1);
        let worker_reads = || other.run(|| assert_eq!(read(&loss).expect("it runs"), 1.0));
        if early {
            worker_reads();
        }
        // Recorded and dropped: after an early read, nothing is left alive here.
        drop(bench.count(&x, 3));
        let kept = add(bench.count(&x, 2), 7.0);
        if !early {
            worker_reads();
        }
        assert_eq!(read(&kept).expect("it runs"), 9.0);
        bench.device.program_keys()
    };
    assert_eq!(run(true), run(false));
}

/// A validation's result that another stream reads, before or after the next training step ends: the program runs in the
/// same place, and one step has ended.
#[test]
fn the_end_of_a_step_runs_earlier_work_as_another_stream_does() {
    let run = |early: bool| {
        let bench = Bench::with_transfers(TpuOptions::training());
        Stream::new().run(|| {
            let validated = bench.count(&bench.tensor(0.0), 2);
            let worker_reads = || Stream::new().run(|| assert_eq!(read(&validated).expect("it runs"), 2.0));
            if early {
                worker_reads();
            }
            let stepped = bench.count(&bench.tensor(1.0), 4);
            crate::end_step();
            worker_reads();
            assert_eq!(read(&stepped).expect("it ran"), 5.0);
        });
        let metrics = bench.device.metrics();
        let other = if early { CutReason::OtherThread } else { CutReason::Seam };
        assert_eq!(metrics.cuts.into_iter().collect::<Vec<_>>(), [(CutReason::MarkStep, 1), (other, 1)]);
        assert_eq!((metrics.interpreted, metrics.executions), (1, 1), "early: {early}");
        bench.device.program_keys()
    };
    assert_eq!(run(true), run(false));
}

/// A loader that records far ahead of the reads, and one that waits for each: the programs and the values are the same.
#[test]
fn batches_that_are_recorded_ahead_run_one_by_one() {
    let run = |ahead: usize| {
        let bench = Bench::new(TpuOptions::training());
        let (loader, mut state) = (Stream::new(), bench.tensor(0.0));
        for first in (0..24).step_by(ahead) {
            let record = |_| {
                state = bench.count(&state, 2);
                add(state.clone(), 100.0)
            };
            let batches: Vec<Tensor> = loader.run(|| (0..ahead).map(record).collect());
            for (i, batch) in batches.iter().enumerate() {
                if i == 5 {
                    bench.set(Fault::Upload);
                    assert!(read(batch).is_err());
                    bench.set(Fault::None);
                }
                assert_eq!(read(batch).expect("it runs"), 100.0 + 2.0 * (first + i + 1) as f32);
            }
        }
        assert_eq!(loader.run(|| read(&add(state.clone(), 1.0))).expect("it runs"), 49.0);
        (bench.device.program_keys(), bench.device.metrics().executions)
    };
    let one_by_one = run(1);
    assert_eq!(run(2), one_by_one);
    assert_eq!(run(24), one_by_one);
}

/// The place where a full trace is cut is counted from the owner's last cut, whatever others had cut before.
#[test]
fn a_full_trace_is_cut_at_a_multiple_of_the_cap() {
    // An addition is three nodes: slot, broadcast, sum.
    let run = |read_elsewhere: bool| {
        let bench = Bench::new(TpuOptions::training().trace_cap(60));
        let x = bench.tensor(0.0);
        let mut y = bench.count(&x, 5);
        if read_elsewhere {
            Stream::new().run(|| read(&y)).expect("it runs");
        }
        for _ in 0..40 {
            y = add(y, 1.0);
        }
        assert_eq!(bench.device.metrics().cuts.get(&CutReason::TraceCap), Some(&2));
        assert_eq!(read(&y).expect("it runs"), 45.0);
    };
    run(false);
    run(true);
}

#[test]
fn a_full_trace_is_an_error_in_strict_mode_and_loses_nothing() {
    let bench = Bench::new(TpuOptions::training().trace_cap(60).strict(true));
    let y = bench.count(&bench.tensor(0.0), 50);
    assert!(matches!(read(&y), Err(TpuError::TraceFull { .. })));
    assert_eq!(read(&y).expect("it has run"), 50.0);
    assert_eq!(bench.device.metrics().cuts.get(&CutReason::TraceCap), None);
}

/// Two models that one thread steps in turn, each in a stream: a mark step of one leaves the other's half step alone.
#[test]
fn streams_of_one_thread_have_a_trace_each() {
    let bench = Bench::new(TpuOptions::training());
    let (a, b) = (Stream::new(), Stream::new());
    let half = a.run(|| bench.count(&bench.tensor(0.0), 2));
    let whole = b.run(|| {
        let whole = bench.count(&bench.tensor(10.0), 2);
        bench.device.mark_step();
        whole
    });
    assert_eq!(bench.device.metrics().executions, 1);
    assert_eq!(a.run(|| read(&bench.count(&half, 1))).expect("it runs"), 3.0);
    assert_eq!(read(&whole).expect("it ran"), 12.0);
}

/// A future that moves between threads records in one trace.
#[test]
fn a_wrapped_future_records_in_its_stream_on_any_thread() {
    let bench = Bench::new(TpuOptions::training());
    let x = bench.tensor(0.0);
    let device = bench.device;
    let pause = || {
        let mut polled = false;
        std::future::poll_fn(
            move |_| {
                if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
            },
        )
    };
    let task = async move {
        let half = add(x, 1.0);
        pause().await;
        let whole = add(half, 1.0);
        device.mark_step();
        read(&whole)
    };
    let mut task = Box::pin(Stream::new().wrap(task));
    assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let second = std::thread::spawn(move || task.as_mut().poll(&mut Context::from_waker(Waker::noop())));
    let Poll::Ready(value) = second.join().expect("it ends") else { panic!("it is ready") };
    assert_eq!(value.expect("it runs"), 2.0);
    let metrics = bench.device.metrics();
    assert_eq!((metrics.executions, metrics.cuts.get(&CutReason::OtherThread)), (1, None));
}
