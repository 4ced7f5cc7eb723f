//! The slice of a `fit` report: the cheapest one that fits.
//!
//! Owns: reading the report that `fit --json` writes, and the choice with its reasons in words. May not know: what is
//! rendered.

use super::error::{Error, Result};
use super::slice::Slice;
use serde::Deserialize;
use std::path::Path;

/// A chosen slice.
pub struct Choice {
    pub slice: Slice,
    /// The axes that `fit` split the step over, for `BURN_TPU_MESH`.
    pub mesh: Option<String>,
    /// Why it was chosen, a line each. Empty if the user named it.
    pub reasons: Vec<String>,
}

/// The part of a report that the choice depends on.
#[derive(Deserialize)]
struct Report {
    slices: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    topology: String,
    verdict: String,
    memory: Memory,
    mesh: Option<String>,
    price: Option<Price>,
}

#[derive(Deserialize)]
struct Memory {
    limit_bytes: u64,
    peak_bytes: u64,
}

#[derive(Deserialize)]
struct Price {
    usd_per_hour: f64,
}

/// Returns the slice with the fewest chips on which the step fits; of several, the one with the lowest price by the hour.
///
/// # Errors
/// [`Error::Report`] for a file of another form, [`Error::NoneFits`] with the reason of each slice.
pub fn choose(path: &Path) -> Result<Choice> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::report(path, error))?;
    let report: Report = serde_json::from_str(&text).map_err(|error| Error::report(path, error))?;
    let (mut fitting, mut others) = (Vec::new(), Vec::new());
    for entry in report.slices {
        match entry.slice() {
            Ok(slice) => fitting.push((slice, entry)),
            Err(reason) => others.push(format!("{}: {reason}", entry.topology)),
        }
    }
    fitting.sort_by(|(one, a), (other, b)| {
        let chips = one.topology().chips().cmp(&other.topology().chips());
        chips.then(a.usd_per_hour().total_cmp(&b.usd_per_hour()))
    });
    let mut fitting = fitting.into_iter();
    let Some((slice, entry)) = fitting.next() else {
        return Err(Error::NoneFits { path: path.into(), tried: others.join("\n") });
    };
    let mut reasons = vec![
        format!(
            "Chosen from {}: of the slices that fit, the one with the fewest chips and then the lowest price.",
            path.display()
        ),
        format!("chosen: {}", entry.describe(&slice)),
    ];
    reasons.extend(fitting.map(|(slice, entry)| format!("also fits: {}", entry.describe(&slice))));
    reasons.extend(others.into_iter().map(|reason| format!("left out: {reason}")));
    Ok(Choice { slice, mesh: entry.mesh, reasons })
}

impl Entry {
    /// Returns the slice if the step fits it and it can be ordered, or why not.
    fn slice(&self) -> std::result::Result<Slice, String> {
        match self.verdict.as_str() {
            "fits" => self.topology.parse().map_err(|error: Error| error.to_string()),
            "out_of_memory" => Err("out of memory".into()),
            _ => Err("the compiler failed".into()),
        }
    }

    /// Returns the price for the order of slices: one that is not known is the highest.
    fn usd_per_hour(&self) -> f64 {
        self.price.as_ref().map_or(f64::INFINITY, |price| price.usd_per_hour)
    }

    fn describe(&self, slice: &Slice) -> String {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        let price = self.price.as_ref().map(|price| format!("{:.2} $ an hour", price.usd_per_hour));
        let (peak, limit) = (gib(self.memory.peak_bytes), gib(self.memory.limit_bytes));
        let price = price.unwrap_or_else(|| "no public price".into());
        format!("{} ({price}; {peak:.2} of {limit:.2} GiB of a device)", slice.describe())
    }
}
