//! A search's result for people: the layouts in order.

use super::figures::{LayoutResult, Row};
use serde::Serialize;
use std::fmt::{Display, Formatter, Result};

/// The layouts of one slice, the best one first.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    /// The slice.
    pub slice: String,
    /// Layouts that divide.
    pub layouts: usize,
    /// The depths that all of the rows were compiled with.
    pub depths: Vec<usize>,
    /// The layers of the model.
    pub layers: usize,
    /// Tokens of a step on all devices.
    pub tokens: usize,
    /// The layouts that were compiled.
    pub rows: Vec<Row>,
    /// The time after the search began.
    pub seconds: f64,
}

const GIB: f64 = (1u64 << 30) as f64;

impl Display for Search {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let depths = self.depths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        let depths = if self.depths == [self.layers] { "all".into() } else { depths };
        writeln!(
            f,
            "{}: {} of {} layouts compiled with {depths} of {} layers, {:.0} s after the search began",
            self.slice,
            self.rows.len(),
            self.layouts,
            self.layers,
            self.seconds
        )?;
        writeln!(
            f,
            "{:<30} {:<10} {:<5} {:>9} {:>9} {:>10} {:>9} {:>9} {:>11}  figures",
            "layout", "keeps", "fits", "peak GiB", "limit GiB", "step ms", "work ms", "links ms", "$/M tokens"
        )?;
        self.rows.iter().try_for_each(|row| self.row(row, &depths, f))?;
        writeln!(
            f,
            "times are bounds, not measurements: a step takes at least the longer of its work and its communication"
        )?;
        match self.best() {
            Some(_) => Ok(()),
            None => writeln!(f, "\nno layout fits: try to keep less, a smaller batch, or a larger slice"),
        }
    }
}

impl Search {
    /// Returns the first layout, if it fits.
    pub fn best(&self) -> Option<&Row> {
        self.rows.first().filter(|row| row.fits())
    }

    fn row(&self, row: &Row, depths: &str, f: &mut Formatter<'_>) -> Result {
        let mesh = if row.mesh.is_empty() { "one device" } else { &row.mesh };
        let kept = row.candidate.kept.name();
        let from = match &row.found {
            LayoutResult::Compiled { .. } => "compiled".to_owned(),
            LayoutResult::Extrapolated { .. } => format!("from {depths} layers"),
            LayoutResult::Refused { reason } => return writeln!(f, "{mesh:<30} {kept:<10} -     {reason}"),
        };
        let Some(figures) = row.figures() else { return Ok(()) };
        let fits = if figures.fits() { "yes" } else { "NO" };
        let price = figures.usd_per_million_tokens(self.tokens).map_or("-".into(), significant);
        writeln!(
            f,
            "{mesh:<30} {kept:<10} {fits:<5} {:>9.3} {:>9.2} {:>10} {:>9} {:>9} {price:>11}  {from}",
            figures.peak_bytes / GIB,
            figures.limit_bytes / GIB,
            significant(1e3 * figures.step_seconds()),
            significant(1e3 * figures.matrix_seconds.max(figures.memory_seconds)),
            significant(1e3 * figures.communication_seconds)
        )
    }
}

/// Formats a number with about four significant digits: `1234.5`, `12.345`, `0.0123`.
fn significant(number: f64) -> String {
    let decimals = match number {
        100.0.. => 1,
        1.0..100.0 => 3,
        _ => 4,
    };
    if number > 0.0 && number < 0.001 { format!("{number:.2e}") } else { format!("{number:.decimals$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_four_digits() {
        let texts = [1234.567, 12.3456, 0.01234, 0.000_012_34, 0.0].map(significant);
        assert_eq!(texts, ["1234.6", "12.346", "0.0123", "1.23e-5", "0.0000"]);
    }
}
