//! What is reported of a NaN or an infinity.

use crate::lines::StepPart;
use std::fmt;

/// A value that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonFinite {
    /// Not a number.
    Nan,
    /// An infinity of either sign.
    Infinity,
}

/// An op of a step, and the line that recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NonFiniteOp {
    /// The Burn op, such as `float_log`.
    pub op: String,
    /// The line that recorded it, as `src/train.rs:41 in app::step`: the first one outside of Burn, burn-tpu and the
    /// standard library. The name of the thread if there is none; empty if it was not kept.
    pub line: String,
    /// The part of the step.
    pub part: StepPart,
    /// In the backward pass: the op whose gradient is computed, as `float_sqrt`, if that is known.
    pub gradient_of: Option<String>,
    /// What the op computes there, as `stablehlo.log: f32[8,4] -> f32[8,4]`. A Burn op may consist of several.
    pub computes: String,
    /// Whether the op did not make the value but was the first to read it: as a number that it was given, such as the value
    /// of a mask, or from a tensor that the step was given.
    pub is_given: bool,
}

/// The first NaN or infinity of a step. See [`TpuOptions::check_numerics`](crate::TpuOptions::check_numerics).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotFinite {
    /// What was made.
    pub value: NonFinite,
    /// The op that made it out of finite values, or, for a NaN, out of an infinity; `None` if the step, when it ran again,
    /// did not show it, or could not run again.
    pub op: Option<NonFiniteOp>,
    /// Of a NaN that was made out of an infinity: the op that made that.
    pub infinity: Option<NonFiniteOp>,
    /// In the backward pass: the op of the forward pass whose gradient the op computes, else one whose value it took.
    pub forward: Option<NonFiniteOp>,
    /// The number of the step, from 0: the mark steps of the device that had ended, or the calls of compiled functions.
    pub step: u64,
    /// Whether it is a call of a compiled function.
    pub is_call: bool,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NonFinite::Nan => "a NaN",
            NonFinite::Infinity => "an infinity",
        })
    }
}

impl fmt::Display for NonFiniteOp {
    /// Writes `src/train.rs:41 in app::step, forward; stablehlo.log: f32[4] -> f32[4]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = if self.line.is_empty() { "its line was not kept" } else { &self.line };
        let of = self.gradient_of.as_ref().map_or_else(String::new, |op| format!(" of {op}"));
        write!(f, "{line}, {}{of}; {}", self.part, self.computes)
    }
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, number) = (self.value, self.step);
        let step =
            if self.is_call { format!("call {number} of a compiled function") } else { format!("step {number}") };
        let Some(op) = &self.op else {
            return write!(f, "{step} computed {value}, and did not show the op when it ran again");
        };
        match op.is_given {
            true => write!(f, "{step} was given {value}: {} is the first to read it ({op})", op.op)?,
            false => write!(f, "{} made {value} in {step} ({op})", op.op)?,
        }
        if let Some(infinity) = &self.infinity {
            let made = if infinity.is_given { "was given to" } else { "was made by" };
            write!(f, "\n  out of an infinity that {made} {} ({infinity})", infinity.op)?;
        }
        match &self.forward {
            Some(forward) => write!(f, "\n  for {} of the forward pass ({forward})", forward.op),
            None => Ok(()),
        }
    }
}
