//! The report for people: first the slices that fit, cheapest first, then buffers, advice and suggestions.

use super::report::{Buffer, BufferKind, Costly, FitReport, SliceFit, Speed, Verdict};
use crate::units::bytes as size;
use std::fmt::{Display, Formatter, Result};

impl FitReport {
    /// Returns the slices, sorted by the price of a step and then by time. Slices on which the step does not fit come
    /// last.
    pub fn by_cost(&self) -> Vec<&SliceFit> {
        let key = |slice: &SliceFit| {
            // Without a mesh, a step of the slice is a step on each of its devices.
            let steps = if slice.mesh.is_some() { 1 } else { slice.devices };
            let cost = slice.price.map_or(f64::MAX, |price| price.usd_per_step / steps as f64);
            let seconds = slice.speed.map_or(f64::MAX, |speed| speed.roofline_seconds);
            (!slice.fits(), cost, seconds)
        };
        let mut slices: Vec<&SliceFit> = self.slices.iter().collect();
        slices.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
        });
        slices
    }
}

impl Display for FitReport {
    /// Writes a table sorted by price, then the details of each slice.
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let step = &self.step;
        writeln!(
            f,
            "step: {} program{}, {} nodes, {:.4} TFLOP ({:.1}% in matrix products and convolutions)",
            step.programs,
            if step.programs == 1 { "" } else { "s" },
            step.nodes,
            step.flops as f64 / 1e12,
            100.0 * step.matrix_flops as f64 / step.flops.max(1) as f64
        )?;
        if !step.rewrites.is_empty() {
            let rewrites = step.rewrites.iter().map(|(pass, count)| format!("{pass} {count}"));
            writeln!(f, "rewrites: {}", rewrites.collect::<Vec<_>>().join(", "))?;
        }
        if !step.named.is_empty() {
            writeln!(f, "layers can keep, on all devices together, and spare the backward pass:")?;
        }
        for values in &step.named {
            let (name, bytes) = (values.name, size(values.bytes));
            let spared = 100.0 * values.flops as f64 / step.flops.max(1) as f64;
            writeln!(
                f,
                "  {name:<16} {bytes:>10} {spared:>5.1}% of FLOP{}",
                if values.is_kept { ", kept" } else { "" }
            )?;
        }
        if !step.settled {
            writeln!(
                f,
                "warning: no two consecutive steps recorded the same programs, so this loop compiles at every step"
            )?;
        }
        let samples = |slice: &SliceFit| slice.price.and_then(|price| price.usd_per_million_samples);
        let tokens = |slice: &SliceFit| slice.price.and_then(|price| price.usd_per_million_tokens);
        writeln!(
            f,
            "\n{:<12} {:<6} {:>9} {:>9} {:>10} {:>6} {:>9} {:>7} {:>10} {:>11} {:>11} {:>8}",
            "slice",
            "fits",
            "peak GiB",
            "limit GiB",
            "step ms",
            "MFU",
            "FLOP/B",
            "fusions",
            "$/step",
            "$/M samples",
            "$/M tokens",
            "compile"
        )?;
        for slice in self.by_cost() {
            let speed = |of: &dyn Fn(&super::Speed) -> String| slice.speed.as_ref().map_or("-".into(), of);
            let dollars = |usd: Option<f64>| usd.map_or("-".into(), money);
            writeln!(
                f,
                "{:<12} {:<6} {:>9.3} {:>9.2} {:>10} {:>6} {:>9} {:>7} {:>10} {:>11} {:>11} {:>6.1} s",
                slice.topology,
                match slice.verdict {
                    Verdict::Fits => "yes",
                    Verdict::OutOfMemory { .. } => "NO",
                    Verdict::Failed { .. } => "failed",
                },
                gib(slice.memory.peak_bytes),
                gib(slice.memory.limit_bytes),
                speed(&|speed| format!("{:.3}", 1e3 * speed.roofline_seconds)),
                speed(&|speed| format!("{:.0}%", 100.0 * speed.mfu)),
                speed(&|speed| format!("{:.1}", speed.intensity)),
                speed(&|speed| speed.fusions.to_string()),
                slice.price.map_or("-".into(), |price| money(price.usd_per_step)),
                dollars(samples(slice)),
                dollars(tokens(slice)),
                slice.compile_seconds
            )?;
        }
        writeln!(
            f,
            "step ms and MFU are bounds (roofline), not measurements; prices are list prices of {}",
            self.priced
        )?;
        let slices = self.by_cost();
        slices.iter().enumerate().try_for_each(|(place, slice)| {
            let same = |earlier: &&&SliceFit| failure(earlier).is_some() && failure(earlier) == failure(slice);
            details(slice, slices[..place].iter().find(same).copied(), f)
        })
    }
}

fn failure(slice: &SliceFit) -> Option<&str> {
    match &slice.verdict {
        Verdict::Failed { message } => Some(message),
        Verdict::Fits | Verdict::OutOfMemory { .. } => None,
    }
}

/// Writes the details of a slice. `same` is an earlier slice that failed for the same reason, which is not repeated.
fn details(slice: &SliceFit, same: Option<&SliceFit>, f: &mut Formatter<'_>) -> Result {
    let memory = &slice.memory;
    let mesh = slice.mesh.as_ref().map_or_else(String::new, |mesh| format!(" as {mesh}"));
    writeln!(f, "\n{} ({} chip{}){mesh}", slice.topology, slice.chips, if slice.chips == 1 { "" } else { "s" })?;
    match &slice.verdict {
        Verdict::Fits => writeln!(
            f,
            "  memory: arguments {}, outputs {} ({} in arguments), temporaries {}, code {}{}",
            size(memory.argument_bytes),
            size(memory.output_bytes),
            size(memory.alias_bytes),
            size(memory.temporary_bytes),
            size(memory.code_bytes),
            if memory.host_bytes > 0 { format!("; in the host's {}", size(memory.host_bytes)) } else { String::new() }
        )?,
        Verdict::OutOfMemory { message } => writeln!(f, "  does not fit: {message}")?,
        Verdict::Failed { message } => match same {
            Some(earlier) => writeln!(f, "  failed: as {}", earlier.topology)?,
            None => writeln!(f, "  failed: {message}")?,
        },
    }
    for collective in &slice.collectives {
        writeln!(
            f,
            "  communication: {} x {} over {}{}, {} given by each device",
            collective.count,
            collective.kind,
            collective.axes.join(" and "),
            if collective.across_slices { " (between slices)" } else { "" },
            size(collective.operand_bytes)
        )?;
    }
    if let Some(speed) = slice.speed.filter(|speed| speed.communication_seconds > 0.0) {
        let (work, links) = (1e3 * speed.roofline_seconds, 1e3 * speed.communication_seconds);
        writeln!(
            f,
            "  step bound: {:.3} ms if communication and work overlap, {:.3} ms if they do not (links {links:.3} ms)",
            work.max(links),
            work + links
        )?;
    }
    if let Some(speed) = &slice.speed {
        estimate(speed, &slice.costliest, f)?;
    }
    for chosen in &slice.chosen_options {
        writeln!(f, "  compiler options: {chosen}")?;
    }
    for suggestion in &slice.suggestions {
        writeln!(f, "  try: {suggestion}")?;
    }
    if !slice.buffers.is_empty() {
        writeln!(f, "  largest buffers:")?;
    }
    for buffer in &slice.buffers {
        writeln!(f, "    {buffer}")?;
    }
    for advice in &slice.advice {
        let (op, count, shape) = (&advice.op, advice.count, &advice.shape);
        writeln!(
            f,
            "  matrix unit: {count} x {op} {shape} pads away {:.1}%: {}",
            100.0 * advice.wasted,
            advice.advice
        )?;
    }
    Ok(())
}

/// Writes the compiler's own estimate beside the bound, and the instructions that take most of it.
fn estimate(speed: &Speed, costliest: &[Costly], f: &mut Formatter<'_>) -> Result {
    let Some(cycles) = speed.estimated_cycles else { return Ok(()) };
    let millions = |cycles: u64| cycles as f64 / 1e6;
    write!(f, "  compiler's estimate: {:.2} M cycles", millions(cycles))?;
    if let Some(seconds) = speed.estimated_seconds {
        write!(f, ", {:.3} ms (bound {:.3} ms)", 1e3 * seconds, 1e3 * speed.roofline_seconds)?;
    }
    writeln!(f, "; main memory {}", size(speed.hbm_bytes))?;
    for costly in costliest {
        let share = 100.0 * costly.cycles as f64 / cycles.max(1) as f64;
        let Costly { op, line, shape, runs, .. } = costly;
        writeln!(f, "    {:>9.3} M {share:>5.1}%  {runs:>4} x {op:<20} {shape}{}", millions(costly.cycles), at(line))?;
    }
    Ok(())
}

impl Display for Buffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let role = match self.kind {
            BufferKind::Argument => "argument of",
            BufferKind::Output => "output of",
            BufferKind::Temporary => "temporary of",
        };
        write!(f, "{:>10}  {:<26} {role} {}{}", size(self.bytes), self.shape, self.op, at(&self.line))?;
        if self.padding_bytes > 0 { write!(f, " ({} of it padding)", size(self.padding_bytes)) } else { Ok(()) }
    }
}

/// Returns the end of a row for an op of this line.
fn at(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!(" at {line}") }
}

/// Formats an amount with two decimals, or with three significant digits if it is small.
fn money(usd: f64) -> String {
    if usd < 0.1 { format!("{usd:.2e}") } else { format!("{usd:.2}") }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}
