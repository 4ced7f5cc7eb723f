//! Named counters and timers of one device, and the report that prints them.

mod tracing_bound;

use crate::recompile::{Recompile, RecompileLog};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing_bound::TracingBoundMonitor;

/// Why a trace was cut: what made its recorded work run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CutReason {
    /// [`Device::mark_step`](crate::Device::mark_step) or [`end_step`](crate::end_step).
    MarkStep,
    /// The recording thread read a value.
    Read,
    /// The recording thread called `Backend::sync`.
    Sync,
    /// A tensor went to another device.
    DeviceCopy,
    /// Another thread read or used a tensor.
    OtherThread,
    /// The trace reached [`TpuOptions::trace_cap`](crate::TpuOptions::trace_cap).
    TraceCap,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident: $unit:literal,)*) => {
        /// What a device has done since it started: a snapshot, taken by [`Device::metrics`](crate::Device::metrics).
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
            /// How often traces were cut, by reason.
            pub cuts: BTreeMap<CutReason, u64>,
            /// The latest compiles of programs that are like an earlier one, oldest first: at most 256.
            pub recompiles: Vec<Recompile>,
            /// Nodes run on the host, by op: what [`Metrics::host_fallbacks`] counts.
            pub host_fallbacks_by_op: BTreeMap<&'static str, u64>,
        }

        /// The live counters behind [`Metrics`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            cuts: Mutex<BTreeMap<CutReason, u64>>,
            pub(crate) recompiles: RecompileLog,
            tracing_bound: TracingBoundMonitor,
            fallbacks: Mutex<BTreeMap<&'static str, u64>>,
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Metrics {
                Metrics {
                    $($name: self.$name.load(Relaxed),)*
                    cuts: self.cuts.lock().clone(),
                    recompiles: self.recompiles.latest(),
                    host_fallbacks_by_op: self.fallbacks.lock().clone(),
                }
            }
        }

        impl Metrics {
            fn rows(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, $unit)),*]
            }

            /// The step meter: each timer divided by the number of steps, in milliseconds.
            fn times_per(&self, steps: u64) -> String {
                let timers = self.rows().into_iter().filter(|(_, value, unit)| *unit == "ns" && *value > 0);
                let per_step = timers.map(|(name, value, _)| {
                    format!("{} {:.3}", name.trim_end_matches("_ns"), value as f64 / 1e6 / steps as f64)
                });
                per_step.collect::<Vec<_>>().join(", ")
            }
        }
    };
}

counters! {
    /// Burn operations recorded, up to the last cut.
    recorded_ops: "",
    /// Graph nodes recorded for them.
    recorded_nodes: "",
    /// Programs that a compiler compiled; one that came from disk is among `disk_hits` instead.
    compiles: "",
    /// Cuts whose program was in memory.
    cache_hits: "",
    /// Programs that left memory to make room.
    cache_evictions: "",
    /// Programs that were loaded from disk instead of compiled.
    disk_hits: "",
    /// Programs that were looked for on disk in vain.
    disk_misses: "",
    /// Programs written to disk.
    disk_writes: "",
    /// Programs that left the disk to make room.
    disk_evictions: "",
    /// Faults of the disk cache, each with a warning; the program is then compiled.
    disk_errors: "",
    /// Time spent in reading and writing programs on disk.
    disk_ns: "ns",
    /// Programs run.
    executions: "",
    /// Nodes run on the host because the engine could not lower them.
    host_fallbacks: "",
    /// Buffers given back to the device while a program ran, because nothing referred to them any more.
    donated_buffers: "",
    /// Their size.
    donated_bytes: "bytes",
    /// Device memory of the programs' arguments as the compiler planned it, summed over executions, like the next three.
    argument_bytes: "bytes",
    /// Of their results.
    output_bytes: "bytes",
    /// Of results in the memory of a donated argument.
    alias_bytes: "bytes",
    /// Of everything in between.
    temporary_bytes: "bytes",
    /// Host-to-device transfers of tensors.
    uploads: "",
    /// Their size.
    upload_bytes: "bytes",
    /// Device-to-host transfers of tensors.
    downloads: "",
    /// Their size.
    download_bytes: "bytes",
    /// Time from the first op of each trace to its cut: recording, Burn's autodiff, and what the caller did between ops.
    trace_ns: "ns",
    /// The part of it that was spent in recording ops, from a sample of them.
    record_ns: "ns",
    /// Time spent in finding programs in memory.
    key_ns: "ns",
    /// Time spent in rewriting graphs before they are compiled.
    rewrite_ns: "ns",
    /// Time spent in lowering them to StableHLO.
    lower_ns: "ns",
    /// Time spent in the plugin's compiler.
    compile_ns: "ns",
    /// Time spent from a cut to the dispatched program, without lowering and compiling.
    dispatch_ns: "ns",
    /// Time spent in reads: waiting for the value, and copying it to the host.
    read_ns: "ns",
    /// Time spent waiting in syncs.
    wait_ns: "ns",
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: usize) {
        counter.fetch_add(n as u64, Relaxed);
    }

    pub(crate) fn add_time(counter: &AtomicU64, time: Duration) {
        counter.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn cut(&self, reason: CutReason) {
        *self.cuts.lock().entry(reason).or_default() += 1;
    }

    /// Counts a step for the warning that steps are bound by tracing.
    pub(crate) fn step(&self) {
        self.tracing_bound.step(Duration::from_nanos(self.trace_ns.load(Relaxed)), Instant::now());
    }

    pub(crate) fn fallback(&self, op: &'static str) {
        Self::add(&self.host_fallbacks, 1);
        *self.fallbacks.lock().entry(op).or_default() += 1;
    }
}

impl std::fmt::Display for Metrics {
    /// One line per counter that is not zero; times in milliseconds, sizes in MiB.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, value, unit) in self.rows().into_iter().filter(|row| row.1 > 0) {
            match unit {
                "ns" => writeln!(f, "{:<18} {:>14.3} ms", name.trim_end_matches("_ns"), value as f64 / 1e6)?,
                "bytes" => {
                    writeln!(f, "{:<18} {:>14.2} MiB", name.trim_end_matches("_bytes"), value as f64 / 1048576.0)?
                }
                _ => writeln!(f, "{name:<18} {value:>14}")?,
            }
        }
        if let Some(&steps) = self.cuts.get(&CutReason::MarkStep) {
            writeln!(f, "{:<18} {}", "ms per step", self.times_per(steps))?;
        }
        for (reason, count) in &self.cuts {
            writeln!(f, "{:<18} {count:>14}", format!("cut: {reason:?}"))?;
        }
        for recompile in &self.recompiles {
            writeln!(f, "recompile: {recompile}")?;
        }
        for (op, count) in &self.host_fallbacks_by_op {
            writeln!(f, "{:<18} {count:>14}", format!("on host: {op}"))?;
        }
        Ok(())
    }
}
