//! A search's result for people: the layouts in order, and the code of the first one.

use super::candidates::Candidate;
use super::figures::{Found, Row};
use crate::layout;
use serde::Serialize;
use std::fmt::{Display, Formatter, Result};

/// The layouts of one slice, the best one first.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    pub slice: String,
    /// Layouts that divide.
    pub layouts: usize,
    /// The depths that all of the rows were compiled with.
    pub depths: Vec<usize>,
    pub layers: usize,
    /// Tokens of a step on all devices.
    pub tokens: usize,
    pub rows: Vec<Row>,
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
            "{:<30} {:<6} {:<5} {:>9} {:>9} {:>10} {:>9} {:>9} {:>11}  figures",
            "layout", "remat", "fits", "peak GiB", "limit GiB", "step ms", "work ms", "links ms", "$/M tokens"
        )?;
        self.rows.iter().try_for_each(|row| self.row(row, &depths, f))?;
        writeln!(
            f,
            "times are bounds, not measurements: a step takes at least the longer of its work and its communication"
        )?;
        match self.rows.first().filter(|row| row.fits()) {
            Some(best) => write!(f, "\n{}", code(best.candidate)),
            None => writeln!(f, "\nno layout fits: try --remat on, a smaller batch, or a larger slice"),
        }
    }
}

impl Search {
    fn row(&self, row: &Row, depths: &str, f: &mut Formatter<'_>) -> Result {
        let mesh = if row.mesh.is_empty() { "one device" } else { &row.mesh };
        let remat = if row.candidate.remat { "on" } else { "off" };
        let from = match &row.found {
            Found::Compiled { .. } => "compiled".to_owned(),
            Found::Extrapolated { .. } => format!("from {depths} layers"),
            Found::Refused { reason } => return writeln!(f, "{mesh:<30} {remat:<6} -     {reason}"),
        };
        let Some(figures) = row.figures() else { return Ok(()) };
        let fits = if figures.fits() { "yes" } else { "NO" };
        let price = figures.usd_per_million_tokens(self.tokens).map_or("-".into(), significant);
        writeln!(
            f,
            "{mesh:<30} {remat:<6} {fits:<5} {:>9.3} {:>9.2} {:>10} {:>9} {:>9} {price:>11}  {from}",
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

/// Returns the code that places a model so.
fn code(candidate: Candidate) -> String {
    let axes: String = candidate.axes().iter().map(|(name, size)| format!(".axis({name:?}, {size})")).collect();
    if axes.is_empty() {
        return "one device needs no mesh\n".into();
    }
    let fsdp = (candidate.fsdp > 1).then_some("fsdp");
    let tensor = (candidate.tensor > 1).then_some("tensor");
    let mut code = format!("let device = TpuDevice::mesh(Mesh::new(){axes});\n");
    code += &layout::code(fsdp, tensor);
    if candidate.remat {
        code += "// Each block: checkpoints.run(block, x, |block, x| block.forward(x)), then checkpoints.backward(loss, &model).\n";
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_four_digits() {
        let texts = [1234.567, 12.3456, 0.01234, 0.000_012_34, 0.0].map(significant);
        assert_eq!(texts, ["1234.6", "12.346", "0.0123", "1.23e-5", "0.0000"]);
    }

    #[test]
    fn the_code_names_the_axes_and_the_rules() {
        let code = code(Candidate { slice: 1, data: 2, fsdp: 16, tensor: 1, remat: true });
        let expected = "let device = TpuDevice::mesh(Mesh::new().axis(\"data\", 2).axis(\"fsdp\", 16));\n\
                        let model = place(model, &Fsdp { axis: \"fsdp\", min_bytes: 65536 })?;\n";
        assert!(code.starts_with(expected) && code.contains("checkpoints.run"), "{code}");
    }
}
