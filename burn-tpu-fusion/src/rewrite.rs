//! The list of the passes: the order in which they run, and the level from which each one does.

use crate::{
    FlashAttention, GatherFirst, LinearActivation, Optimization, Pass, QueryBlocks, Roll, RoundOnce, RowBlocks,
    ScatterSum, SoftmaxGradient,
};
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// A pass of the pipeline. Its [`Display`] is its name, such as `query_blocks`, as the metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rewrite {
    /// See [`LinearActivation`].
    LinearActivation,
    /// See [`GatherFirst`].
    GatherFirst,
    /// See [`ScatterSum`].
    ScatterSum,
    /// See [`FlashAttention`]. For TPUs alone.
    FlashAttention,
    /// See [`SoftmaxGradient`].
    SoftmaxGradient,
    /// See [`QueryBlocks`].
    QueryBlocks,
    /// See [`RowBlocks`]. For one TPU alone.
    RowBlocks,
    /// See [`RoundOnce`]. For one device alone.
    RoundOnce,
    /// See [`Roll`].
    Roll,
}

impl Rewrite {
    /// All passes, in their order.
    pub const ALL: [Self; 9] = [
        Self::LinearActivation,
        Self::GatherFirst,
        Self::ScatterSum,
        Self::FlashAttention,
        Self::SoftmaxGradient,
        Self::QueryBlocks,
        Self::RowBlocks,
        Self::RoundOnce,
        Self::Roll,
    ];

    /// Returns the lowest level that has this pass.
    pub fn level(self) -> Optimization {
        match self {
            Self::LinearActivation | Self::GatherFirst | Self::ScatterSum | Self::Roll => Optimization::Conservative,
            Self::SoftmaxGradient | Self::QueryBlocks => Optimization::Balanced,
            Self::FlashAttention | Self::RowBlocks | Self::RoundOnce => Optimization::Aggressive,
        }
    }

    /// Returns whether the pass makes programs that only a TPU runs well.
    pub(crate) fn is_for_tpus(self) -> bool {
        matches!(self, Self::FlashAttention | Self::RowBlocks)
    }

    pub(crate) fn pass(self) -> Box<dyn Pass> {
        match self {
            Self::LinearActivation => Box::new(LinearActivation),
            Self::GatherFirst => Box::new(GatherFirst),
            Self::ScatterSum => Box::new(ScatterSum),
            Self::FlashAttention => Box::new(FlashAttention::default()),
            Self::SoftmaxGradient => Box::new(SoftmaxGradient),
            Self::QueryBlocks => Box::new(QueryBlocks::default()),
            Self::RowBlocks => Box::new(RowBlocks::default()),
            Self::RoundOnce => Box::new(RoundOnce),
            Self::Roll => Box::new(Roll),
        }
    }
}

impl Display for Rewrite {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.pass().name())
    }
}

/// The name of a pass that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not one of {names}", names = Rewrite::ALL.map(|rewrite| rewrite.to_string()).join(", "))]
pub struct UnknownRewrite(String);

impl FromStr for Rewrite {
    type Err = UnknownRewrite;

    fn from_str(name: &str) -> Result<Self, UnknownRewrite> {
        let named = Self::ALL.into_iter().find(|rewrite| rewrite.to_string() == name);
        named.ok_or_else(|| UnknownRewrite(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_parsed_from_its_name() {
        for rewrite in Rewrite::ALL {
            assert_eq!(rewrite.to_string().parse(), Ok(rewrite));
        }
        let unknown = "merge".parse::<Rewrite>().unwrap_err().to_string();
        assert!(unknown.contains("`merge`") && unknown.contains("gather_first, scatter_sum"), "{unknown}");
    }
}
