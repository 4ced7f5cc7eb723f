//! The summary of a profile: the costliest rows, what the host did, and how long device and host were busy.

use crate::hlo::HloOps;
use crate::intervals::Intervals;
use crate::view::{EventView, events, plane_stat};
use crate::xspace::{XLine, XPlane, XSpace};
use crate::{DEVICE_PREFIX, HOST_PLANE, PROFILER, ProfileError, WAIT, folder, names};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// What a profile says, in short.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ProfileReport {
    /// The time that the profile covers: the sum of `device`, `host`, `profiler` and `idle`.
    pub window: Duration,
    /// The time in which a device was busy.
    pub device: Duration,
    /// The time in which no device was busy and the host worked: recorded, compiled, dispatched, transferred.
    pub host: Duration,
    /// The time in which no device was busy, and the host worked for the profile itself: without it, this time is not spent.
    pub profiler: Duration,
    /// The rest: no device was busy, and the host waited or ran something else.
    pub idle: Duration,
    /// The rows of the devices with one name, the costliest first.
    pub ops: Vec<OpCost>,
    /// What the host did, the costliest first. Phases nest: a cut contains a compile.
    pub phases: Vec<PhaseCost>,
}

/// The rows of a device that have one name.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct OpCost {
    /// The name of the rows: an instruction of the device's compiler, or a program.
    pub name: String,
    /// The Burn ops that they are; empty if unknown.
    pub burn_ops: String,
    /// The lines of source that recorded them; empty if unknown.
    pub source: String,
    /// The number of rows.
    pub count: u64,
    /// Their time.
    pub time: Duration,
}

/// The events of the host of one phase.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PhaseCost {
    /// The phase: `record`, `rewrite`, `lower`, `compile`, `dispatch`, `wait`, `transfer`.
    pub name: String,
    /// The number of events.
    pub count: u64,
    /// The time in which at least one thread was in the phase.
    pub time: Duration,
}

impl ProfileReport {
    /// Reads the profile at a path: an `.xplane.pb` file, the folder of a run, or the folder given to the profiler, whose
    /// latest run is read.
    ///
    /// # Errors
    /// [`ProfileError`]: there is none, or it cannot be read.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        folder::read(path).map(|(_, space)| Self::of(&space))
    }

    /// Summarises a profile.
    pub fn of(space: &XSpace) -> Self {
        let devices = || space.planes.iter().filter(|plane| plane.name.starts_with(DEVICE_PREFIX));
        let rows = || devices().flat_map(|plane| op_lines(plane).flat_map(move |line| events(plane, line)));
        let (host, profiler, phases) = phases(space);
        let window = window(space).unwrap_or_default();
        let device: Intervals = rows().map(|event| event.time_ns()).collect();
        let device = device.within(&window);
        let host = host.within(&window).without(&device);
        let profiler = profiler.within(&window).without(&device).without(&host);
        let [window, device, host, profiler] =
            [window.end - window.start, device.length(), host.length(), profiler.length()].map(Duration::from_nanos);
        Self {
            window,
            device,
            host,
            profiler,
            idle: window.saturating_sub(device + host + profiler),
            ops: ops(rows(), &HloOps::of(space)),
            phases,
        }
    }

    /// Returns the share of the rows' time, from 0 to 1, in rows whose Burn ops are known; 1 if there is no row.
    pub fn named_share(&self) -> f64 {
        let time = |named: bool| {
            let rows = self.ops.iter().filter(|op| !named || !op.burn_ops.is_empty());
            rows.map(|op| op.time).sum::<Duration>().as_secs_f64()
        };
        let all = time(false);
        if all == 0.0 { 1.0 } else { time(true) / all }
    }
}

/// Returns the lines of a device that have its smallest rows: the ops where there are any, else all.
fn op_lines(plane: &XPlane) -> impl Iterator<Item = &XLine> {
    /// The names of lines that summarise others.
    const SUMMARIES: [&str; 6] =
        ["Steps", "XLA Modules", "Framework Name Scope", "Framework Ops", "Source code", "XLA TraceMe"];
    let has_ops = plane.lines.iter().any(|line| line.name == "XLA Ops");
    plane.lines.iter().filter(move |line| match has_ops {
        true => line.name == "XLA Ops",
        false => !SUMMARIES.contains(&line.name.as_str()),
    })
}

/// The framework op that the CUDA plugin gives a kernel of a CUDA graph, whose `hlo_op` is the graph.
const GRAPH_OP: &str = "XlaModule:";

/// Returns the Burn ops of a row: those that burn-tpu or the plugin wrote, or those of its instruction. The instruction is
/// the row's `hlo_op`, or else what the row is named after.
fn burn_ops(row: &EventView, hlo: &HloOps) -> Option<String> {
    let of_instruction = || {
        let program = row.stat(names::PROGRAM)?;
        let named = row.stat(names::HLO_OP).and_then(|instruction| hlo.get(&program, &instruction));
        named.or_else(|| hlo.get(&program, row.name())).map(str::to_owned)
    };
    let written = row.stat(names::BURN_OPS).or_else(|| row.stat(names::FRAMEWORK_OP));
    written.filter(|ops| !ops.is_empty() && ops != GRAPH_OP).or_else(of_instruction)
}

fn ops<'p>(rows: impl Iterator<Item = EventView<'p>>, hlo: &HloOps) -> Vec<OpCost> {
    let mut ops: BTreeMap<&str, OpCost> = BTreeMap::new();
    for row in rows {
        let op = ops.entry(row.name()).or_insert_with(|| OpCost {
            name: row.name().to_owned(),
            burn_ops: burn_ops(&row, hlo).unwrap_or_default(),
            source: row.stat(names::SOURCE).unwrap_or_default(),
            ..OpCost::default()
        });
        let time = row.time_ns();
        op.count += 1;
        op.time += Duration::from_nanos(time.end - time.start);
    }
    let mut ops: Vec<_> = ops.into_values().collect();
    ops.sort_by_key(|op| std::cmp::Reverse(op.time));
    ops
}

/// Returns when the host worked, when it worked for the profile, and its phases.
fn phases(space: &XSpace) -> (Intervals, Intervals, Vec<PhaseCost>) {
    let hosts = space.planes.iter().filter(|plane| plane.name == HOST_PLANE);
    let (mut working, mut profiling, mut times) = (Vec::new(), Vec::new(), BTreeMap::<String, Vec<Range<u64>>>::new());
    for (plane, line) in hosts.flat_map(|plane| plane.lines.iter().map(move |line| (plane, line))) {
        let (mut works, mut waits) = (Vec::new(), Vec::new());
        for event in events(plane, line) {
            // Other events of this plane are a plugin's.
            let Some(phase) = event.stat(names::PHASE) else { continue };
            match phase.as_str() {
                WAIT => waits.push(event.time_ns()),
                PROFILER => profiling.push(event.time_ns()),
                _ => works.push(event.time_ns()),
            }
            times.entry(phase).or_default().push(event.time_ns());
        }
        // A thread that waits inside another phase does not work, and one that works for the profile does not either.
        let waits = waits.into_iter().chain(profiling.iter().cloned()).collect();
        working.extend(works.into_iter().collect::<Intervals>().without(&waits).into_ranges());
    }
    let cost = |(name, times): (String, Vec<Range<u64>>)| {
        let (count, union) = (times.len() as u64, times.into_iter().collect::<Intervals>());
        PhaseCost { name, count, time: Duration::from_nanos(union.length()) }
    };
    let mut phases: Vec<_> = times.into_iter().map(cost).collect();
    phases.sort_by_key(|phase| std::cmp::Reverse(phase.time));
    (working.into_iter().collect(), profiling.into_iter().collect(), phases)
}

/// Returns the time that a profile covers: what the host's plane says, else from the first event to the last.
fn window(space: &XSpace) -> Option<Range<u64>> {
    let stat = |name: &str| {
        let found = space.planes.iter().find_map(|plane| plane_stat(plane, name));
        found.and_then(|text| text.parse::<u64>().ok())
    };
    if let (Some(begin), Some(end)) = (stat(names::BEGIN_NS), stat(names::END_NS)) {
        return Some(begin..end.max(begin));
    }
    let lines = space.planes.iter().flat_map(|plane| plane.lines.iter().map(move |line| (plane, line)));
    let times = lines.flat_map(|(plane, line)| events(plane, line)).map(|event| event.time_ns());
    times.reduce(|all, time| all.start.min(time.start)..all.end.max(time.end))
}

/// The number of rows that are printed.
const MOST_PRINTED: usize = 20;

/// The most characters of a cell.
const WIDEST: usize = 64;

impl fmt::Display for ProfileReport {
    /// The shares of device, host, profiler and idle, what the host did, then the costliest rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |time: Duration| 100.0 * time.as_secs_f64() / self.window.as_secs_f64().max(1e-9);
        writeln!(f, "{:.3} ms profiled", milliseconds(self.window))?;
        let shares = [("device", self.device), ("host", self.host), ("profiler", self.profiler), ("idle", self.idle)];
        for (name, time) in shares {
            writeln!(f, "  {name:<10} {:>10.3} ms {:>6.1} %", milliseconds(time), percent(time))?;
        }
        writeln!(f, "\nhost (phases nest)")?;
        for phase in &self.phases {
            writeln!(f, "  {:<10} {:>10.3} ms {:>8} times", phase.name, milliseconds(phase.time), phase.count)?;
        }
        self.write_ops(f)
    }
}

impl ProfileReport {
    fn write_ops(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Duration = self.ops.iter().map(|op| op.time).sum();
        writeln!(f, "\ndevice: {:.1} % of the time has the names of Burn ops", 100.0 * self.named_share())?;
        writeln!(f, "  {:>10} {:>6} {:>7}  row", "ms", "%", "count")?;
        for op in self.ops.iter().take(MOST_PRINTED) {
            let share = 100.0 * op.time.as_secs_f64() / all.as_secs_f64().max(1e-9);
            writeln!(f, "  {:>10.3} {share:>6.1} {:>7}  {}", milliseconds(op.time), op.count, cell(&op.name))?;
            for detail in [&op.burn_ops, &op.source].into_iter().filter(|detail| !detail.is_empty()) {
                writeln!(f, "{:29}{}", "", cell(detail))?;
            }
        }
        match self.ops.len().saturating_sub(MOST_PRINTED) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

/// Returns a text of one line that is not too long.
fn cell(text: &str) -> String {
    let mut line: String = text.replace('\n', ", ").chars().take(WIDEST + 1).collect();
    if line.chars().count() > WIDEST {
        line.pop();
        line.push('…');
    }
    line
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PlaneBuilder, Stat};

    /// The device runs from 20 to 60 ms of 100; the host records from 10 to 30 and reads from 60 to 92, of which it waits
    /// until 90; it records again from 94 to 97, of which it captures a stack from 95.
    fn space() -> XSpace {
        let ms = |range: Range<u64>| range.start * 1_000_000..range.end * 1_000_000;
        let mut device = PlaneBuilder::new("/device:CUSTOM:CPU:0");
        let line = device.line(1, "programs");
        let burn_ops = (names::BURN_OPS, Stat::text("float_matmul 2"));
        device.event(line, "a", ms(20..50), [burn_ops, (names::SOURCE, Stat::text("src/a.rs:3"))]);
        device.event(line, "b", ms(50..60), []);
        let mut host = PlaneBuilder::new(HOST_PLANE);
        host.plane_stat(names::BEGIN_NS, Stat::Number(0));
        host.plane_stat(names::END_NS, Stat::Number(100_000_000));
        let line = host.line(1, "main");
        host.event(line, "float_matmul", ms(10..30), [(names::PHASE, Stat::text("record"))]);
        host.event(line, "read", ms(60..92), [(names::PHASE, Stat::text("cut"))]);
        host.event(line, "value", ms(60..90), [(names::PHASE, Stat::text(WAIT))]);
        host.event(line, "of a plugin", ms(0..100), []);
        host.event(line, "float_matmul", ms(94..97), [(names::PHASE, Stat::text("record"))]);
        host.event(line, "capture", ms(95..97), [(names::PHASE, Stat::text(PROFILER))]);
        XSpace { planes: vec![device.finish(), host.finish()], ..XSpace::default() }
    }

    #[test]
    fn device_host_and_idle_make_up_the_window() {
        let report = ProfileReport::of(&space());
        let ms = [report.window, report.device, report.host, report.profiler, report.idle].map(|time| time.as_millis());
        assert_eq!(ms, [100, 40, 13, 2, 45]);
        let phases: Vec<_> = report.phases.iter().map(|phase| (phase.name.as_str(), phase.count)).collect();
        assert_eq!(phases, [("cut", 1), (WAIT, 1), ("record", 2), (PROFILER, 1)]);
        assert_eq!(report.named_share(), 0.75);
    }

    #[test]
    fn the_text_has_shares_phases_and_rows() {
        let text = ProfileReport::of(&space()).to_string();
        let lines = [
            "100.000 ms profiled",
            "  device         40.000 ms   40.0 %",
            "  host           13.000 ms   13.0 %",
            "  profiler        2.000 ms    2.0 %",
            "  idle           45.000 ms   45.0 %",
            "",
            "host (phases nest)",
            "  cut            32.000 ms        1 times",
            "  wait           30.000 ms        1 times",
            "  record         23.000 ms        2 times",
            "  profiler        2.000 ms        1 times",
            "",
            "device: 75.0 % of the time has the names of Burn ops",
            "          ms      %   count  row",
            "      30.000   75.0       1  a",
            "                             float_matmul 2",
            "                             src/a.rs:3",
            "      10.000   25.0       1  b",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_device_with_ops_has_no_time_twice() {
        let mut device = PlaneBuilder::new("/device:TPU:0");
        for (id, name) in [(1, "Steps"), (2, "XLA Modules"), (3, "XLA Ops"), (4, "Async XLA Ops")] {
            let line = device.line(id, name);
            device.event(line, name, 0..1000, []);
        }
        let report = ProfileReport::of(&XSpace { planes: vec![device.finish()], ..XSpace::default() });
        assert_eq!(report.ops.iter().map(|op| op.name.as_str()).collect::<Vec<_>>(), ["XLA Ops"]);
    }
}
