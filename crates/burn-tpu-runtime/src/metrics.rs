//! Named counters and timers of one device, and the report that prints them.

mod recompile;
mod tracing_bound;

pub use recompile::{Recompile, RecompileCause};

use crate::memory::Ledger;
use crate::options::ChosenOptions;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing_bound::TracingBoundMonitor;

/// Why a trace was cut: what made its recorded work run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CutReason {
    /// [`Device::mark_step`](crate::Device::mark_step) or [`end_step`](crate::end_step).
    MarkStep,
    /// The end of a training step ran earlier work apart, which the step does not use. Another thread may have had it run
    /// before ([`CutReason::OtherThread`]): which of the two happens is chance.
    Seam,
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
    /// A compiled function was called with a recorded tensor.
    Call,
}

impl CutReason {
    /// Returns the name of a span of a profile.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            CutReason::MarkStep => "mark step",
            CutReason::Seam => "seam",
            CutReason::Read => "read",
            CutReason::Sync => "sync",
            CutReason::DeviceCopy => "device copy",
            CutReason::OtherThread => "other thread",
            CutReason::TraceCap => "trace cap",
            CutReason::Call => "call",
        }
    }
}

/// Each counter is `name: unit`, each timer `method from counter of nanoseconds`.
macro_rules! metrics {
    (
        counters { $($(#[$doc:meta])* $name:ident: $unit:literal,)* }
        timers { $($(#[$time_doc:meta])* $time:ident from $ns:ident,)* }
    ) => {
        /// What a device has done since it started: a snapshot, taken by [`Device::metrics`](crate::Device::metrics).
        ///
        /// Counters are fields. Times are methods and return a [`Duration`]: [`Metrics::record_time`],
        /// [`Metrics::compile_time`] and so on. All of them only grow: subtract an earlier snapshot from a later one to know
        /// what a part of the program did. [`Display`](std::fmt::Display) writes a report of everything that is not zero,
        /// which ends with the reason of every cut and of every recompile.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
            /// The number of times that traces were cut, by reason.
            pub cuts: BTreeMap<CutReason, u64>,
            /// The latest compiles of programs that are like an earlier one, oldest first: at most 256.
            pub recompiles: Vec<Recompile>,
            /// Nodes run on the host, by op: what [`Metrics::host_fallbacks`] counts.
            pub host_fallbacks_by_op: BTreeMap<&'static str, u64>,
            /// The number of places that programs were rewritten at before they were compiled, by pass. Each compile counts,
            /// also of a program that then came from disk.
            pub rewrites: BTreeMap<&'static str, u64>,
            /// The compiler options that were chosen for programs by trying several, at the level `aggressive` on a TPU: one
            /// entry for each program that was compiled or came from disk.
            pub chosen_options: Vec<ChosenOptions>,
            $($time: Duration,)*
        }

        impl Metrics {
            $($(#[$time_doc])* pub fn $time(&self) -> Duration {
                self.$time
            })*

            fn counters(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, $unit)),*]
            }

            /// The timers that are not zero, by name.
            fn times(&self) -> impl Iterator<Item = (&'static str, Duration)> {
                let all = [$((stringify!($time).trim_end_matches("_time"), self.$time())),*];
                all.into_iter().filter(|(_, time)| !time.is_zero())
            }
        }

        /// The live counters that [`Metrics`] is a snapshot of.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            $(pub(crate) $ns: AtomicU64,)*
            /// The number of values whose bytes are the `waiting_bytes`.
            pub(crate) waiting_values: AtomicU64,
            cuts: Mutex<BTreeMap<CutReason, u64>>,
            pub(crate) memory: Arc<Ledger>,
            tracing_bound: TracingBoundMonitor,
            fallbacks: Mutex<BTreeMap<&'static str, u64>>,
            rewrites: Mutex<BTreeMap<&'static str, u64>>,
            chosen_options: Mutex<Vec<ChosenOptions>>,
        }

        impl Counters {
            pub(crate) fn snapshot(&self, recompiles: Vec<Recompile>) -> Metrics {
                Metrics {
                    $($name: self.$name.load(Relaxed),)*
                    $($time: Duration::from_nanos(self.$ns.load(Relaxed)),)*
                    cuts: self.cuts.lock().clone(),
                    recompiles,
                    host_fallbacks_by_op: self.fallbacks.lock().clone(),
                    rewrites: self.rewrites.lock().clone(),
                    chosen_options: self.chosen_options.lock().clone(),
                }
            }
        }
    };
}

metrics! {
    counters {
        /// Burn operations recorded, up to the last cut.
        recorded_ops: "",
        /// Graph nodes recorded for them.
        recorded_nodes: "",
        /// Programs that a compiler compiled; one that came from disk is among `disk_hits` instead.
        compiles: "",
        /// Cuts whose program was in memory.
        cache_hits: "",
        /// Programs that were evicted from memory.
        cache_evictions: "",
        /// Programs that were loaded from disk instead of compiled.
        disk_hits: "",
        /// Programs that were looked for on disk and not found.
        disk_misses: "",
        /// Programs written to disk.
        disk_writes: "",
        /// Programs that were evicted from the disk.
        disk_evictions: "",
        /// Faults of the disk cache, each with a warning; the program is then compiled.
        disk_errors: "",
        /// Programs run on the device.
        executions: "",
        /// Calls of compiled functions; each is one of the `executions`, unless its results are its arguments.
        function_calls: "",
        /// Recordings of compiled functions: two for each new signature, and one for each check.
        function_recordings: "",
        /// Pieces run of programs that are longer than [`TpuOptions::program_cap`](crate::TpuOptions::program_cap). Such a
        /// program is one of the `executions`.
        pieces: "",
        /// Programs run in the interpreter because they were new and had little work. See
        /// [`TpuOptions::interpret_from`](crate::TpuOptions::interpret_from).
        interpreted: "",
        /// Families of programs: those that differ in sizes alone. See
        /// [`TpuOptions::shape_buckets`](crate::TpuOptions::shape_buckets).
        families: "",
        /// Programs that ran as the program of their family for a bucket of sizes.
        bucket_runs: "",
        /// Programs of buckets that a compiler compiled; they are among `compiles`.
        bucket_compiles: "",
        /// Elements of the values of programs that ran as that of a bucket, in buffers of the bucket, summed over
        /// `bucket_runs`. See [`Metrics::padding_percent`].
        bucket_elements: "",
        /// Those of `bucket_elements` that are padding.
        bucket_padding: "",
        /// Ops on small values of the user that were computed when they were called: they are no part of a program.
        ops_at_once: "",
        /// Programs of which a part ran in the interpreter, on values of the host, and the rest on the device.
        host_parts: "",
        /// Bytes of the values that are on the host and that no program on the device has read. It falls when one does, or
        /// when a tensor is dropped: the only number here that falls.
        waiting_bytes: "bytes",
        /// Nodes run on the host because the engine could not lower them.
        host_fallbacks: "",
        /// Buffers donated to a program that ran, because nothing referred to them any more.
        donated_buffers: "",
        /// Bytes of the donated buffers.
        donated_bytes: "bytes",
        /// Bytes of the programs' arguments as the compiler planned them, summed over executions. The same holds for
        /// `output_bytes`, `alias_bytes` and `temporary_bytes`.
        argument_bytes: "bytes",
        /// Bytes of the programs' results.
        output_bytes: "bytes",
        /// Bytes of the results that take the memory of a donated argument.
        alias_bytes: "bytes",
        /// Bytes of the values between arguments and results.
        temporary_bytes: "bytes",
        /// Host-to-device transfers of tensors.
        uploads: "",
        /// Bytes of the host-to-device transfers.
        upload_bytes: "bytes",
        /// Host-to-device transfers of the numbers that programs take, packed: one or two for each run on each device,
        /// and none if they are those of the program's run before.
        scalar_uploads: "",
        /// Device-to-host transfers of tensors.
        downloads: "",
        /// Bytes of the device-to-host transfers.
        download_bytes: "bytes",
    }
    timers {
        /// Returns the time from the first op of each trace to its cut: recording, Burn's autodiff, and what the caller did
        /// between ops.
        trace_time from trace_ns,
        /// Returns the part of [`Metrics::trace_time`] that was spent in recording ops, estimated from a sample of them.
        record_time from record_ns,
        /// Returns the time spent in finding programs in memory.
        key_time from key_ns,
        /// Returns the time spent in rewriting graphs before they are compiled.
        rewrite_time from rewrite_ns,
        /// Returns the time spent in lowering graphs to StableHLO.
        lower_time from lower_ns,
        /// Returns the time spent in the plugin's compiler.
        compile_time from compile_ns,
        /// Returns the time spent in reading and writing programs on disk.
        disk_time from disk_ns,
        /// Returns the time from a cut to the dispatched program, without lowering and compiling.
        dispatch_time from dispatch_ns,
        /// Returns the time spent in reads: waiting for the value, and copying it to the host.
        read_time from read_ns,
        /// Returns the time spent waiting in syncs.
        wait_time from wait_ns,
    }
}

impl Metrics {
    /// Returns how much of what runs in buckets is padding, in percent: of all elements of the values of the recorded
    /// programs, arguments and results among them, in buffers of their buckets. A program whose sizes fill their buckets
    /// has 0, and so has a device on which nothing ran in a bucket. It is a measure of wasted work and memory, not of time.
    /// Finer buckets ([`TpuOptions::shape_buckets`](crate::TpuOptions::shape_buckets)) waste less and compile more often.
    pub fn padding_percent(&self) -> f64 {
        100.0 * self.bucket_padding as f64 / self.bucket_elements.max(1) as f64
    }

    /// Returns the step meter: each timer divided by the number of steps, in milliseconds.
    fn times_per(&self, steps: u64) -> String {
        let per_step = self.times().map(|(name, time)| format!("{name} {:.3}", milliseconds(time) / steps as f64));
        per_step.collect::<Vec<_>>().join(", ")
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
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

    /// Keeps what was chosen for a program.
    pub(crate) fn chose(&self, chosen: ChosenOptions) {
        self.chosen_options.lock().push(chosen);
    }

    /// Counts what the passes found in a program.
    pub(crate) fn rewrote(&self, applied: &[(&'static str, usize)]) {
        let mut rewrites = self.rewrites.lock();
        for &(pass, count) in applied.iter().filter(|(_, count)| *count > 0) {
            *rewrites.entry(pass).or_default() += count as u64;
        }
    }
}

impl std::fmt::Display for Metrics {
    /// One line per counter that is not zero; times in milliseconds, sizes in MiB.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, value, unit) in self.counters().into_iter().filter(|row| row.1 > 0) {
            match unit {
                "bytes" => {
                    writeln!(f, "{:<18} {:>14.2} MiB", name.trim_end_matches("_bytes"), value as f64 / 1048576.0)?
                }
                _ => writeln!(f, "{name:<18} {value:>14}")?,
            }
        }
        if self.bucket_elements > 0 {
            writeln!(f, "{:<18} {:>14.1} %", "padding", self.padding_percent())?;
        }
        for (name, time) in self.times() {
            writeln!(f, "{name:<18} {:>14.3} ms", milliseconds(time))?;
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
        for (pass, count) in &self.rewrites {
            writeln!(f, "{:<26} {count:>6}", format!("rewrote: {pass}"))?;
        }
        for chosen in &self.chosen_options {
            writeln!(f, "compiler options: {chosen}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_timer_is_read_by_its_own_method() {
        let counters = Counters::default();
        Counters::add_time(&counters.compile_ns, Duration::from_micros(1500));
        Counters::add_time(&counters.wait_ns, Duration::from_nanos(7));
        let metrics = counters.snapshot(Vec::new());
        assert_eq!(metrics.compile_time(), Duration::from_micros(1500));
        assert_eq!(metrics.wait_time(), Duration::from_nanos(7));
        assert_eq!(metrics.record_time(), Duration::ZERO);
    }

    #[test]
    fn the_report_has_the_times_in_milliseconds_and_omits_what_is_zero() {
        let counters = Counters::default();
        Counters::add_time(&counters.compile_ns, Duration::from_micros(3000));
        Counters::add(&counters.upload_bytes, 3 << 20);
        counters.cut(CutReason::MarkStep);
        counters.cut(CutReason::MarkStep);
        let report = counters.snapshot(Vec::new()).to_string();
        let lines = [
            "upload                       3.00 MiB",
            "compile                     3.000 ms",
            "ms per step        compile 1.500",
            "cut: MarkStep                   2",
        ];
        assert_eq!(report.lines().collect::<Vec<_>>(), lines);
    }
}
