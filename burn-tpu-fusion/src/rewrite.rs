//! The table of the passes: the order in which they run, the lowest level that has each, and the targets that it is for.

use crate::{Optimization, Pass, Target};
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// Declares the passes, in the order in which they run. A row: the pass, the lowest level that has it, and `Tpu` or
/// `Cpu` if it makes programs that only those run well, else `Any`.
macro_rules! rewrites {
    ($($(#[doc = $doc:literal])+ $pass:ident: $level:ident, $target:ident;)+) => {
        /// A pass of the pipeline. Its [`Display`] is its name, such as `query_blocks`, as the metrics count it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rewrite {
            $($(#[doc = $doc])+ $pass,)+
        }

        impl Rewrite {
            /// All passes, in their order.
            pub const ALL: [Self; [$(stringify!($pass)),+].len()] = [$(Self::$pass),+];

            /// Returns the lowest level that has this pass.
            pub fn level(self) -> Optimization {
                match self {
                    $(Self::$pass => Optimization::$level,)+
                }
            }

            /// Returns whether a level that skips some passes has this one.
            pub(crate) fn is_of(self, level: Optimization, skipped: &[Self]) -> bool {
                self.level() <= level && !skipped.contains(&self)
            }

            /// Returns the targets that the pass is for.
            pub(crate) fn target(self) -> Target {
                match self {
                    $(Self::$pass => Target::$target,)+
                }
            }

            pub(crate) fn pass(self) -> Box<dyn Pass> {
                match self {
                    $(Self::$pass => Box::<crate::$pass>::default(),)+
                }
            }
        }
    };
}

rewrites! {
    /// See [`LinearActivation`](crate::LinearActivation).
    LinearActivation: Conservative, Any;
    /// See [`GatherFirst`](crate::GatherFirst).
    GatherFirst: Conservative, Any;
    /// See [`ScatterSum`](crate::ScatterSum).
    ScatterSum: Conservative, Any;
    /// See [`FlashAttention`](crate::FlashAttention). For TPUs alone.
    FlashAttention: Aggressive, Tpu;
    /// See [`ProductSum`](crate::ProductSum).
    ProductSum: Balanced, Any;
    /// See [`SoftmaxGradient`](crate::SoftmaxGradient).
    SoftmaxGradient: Balanced, Any;
    /// See [`QueryBlocks`](crate::QueryBlocks).
    QueryBlocks: Balanced, Any;
    /// See [`RowBlocks`](crate::RowBlocks). For one TPU alone.
    RowBlocks: Aggressive, Tpu;
    /// See [`RoundOnce`](crate::RoundOnce). For one device alone.
    RoundOnce: Conservative, Any;
    /// See [`Roll`](crate::Roll).
    Roll: Conservative, Any;
    /// See [`Depthwise`](crate::Depthwise). For CPUs alone. Its taps are no time steps, so it comes after `Roll`.
    Depthwise: Balanced, Cpu;
    /// See [`FewBits`](crate::FewBits). For CPUs alone.
    FewBits: Balanced, Cpu;
    /// See [`FewRows`](crate::FewRows). For CPUs alone. It comes after what looks for products in batches.
    FewRows: Balanced, Cpu;
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
