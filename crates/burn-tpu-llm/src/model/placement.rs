//! Where the weights of a decoder live on a mesh.

use crate::config::Config;
use burn_tpu::{Fsdp, Parameter, Patterns, PlacementRule, Replicate};

/// Smaller weights are on every chip: to gather them costs more than their memory is worth.
const LEAST_BYTES: usize = 64 << 10;

impl Config {
    /// Returns the rule that splits a decoder's weights over axes of a mesh, for [`burn_tpu::place`].
    ///
    /// `tensor` splits the heads and the hidden layers, so that a layer's two pairs of products need one exchange each
    /// ([Shoeybi et al.](https://arxiv.org/abs/1909.08053)); the tokens of the vocabulary too. `fsdp` splits what is left
    /// of each weight, which is gathered where it is used.
    pub fn placement<'a>(&self, tensor: Option<&'a str>, fsdp: Option<&'a str>) -> impl PlacementRule + use<'a> {
        let mut rule = Patterns::new();
        for columns in ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"] {
            rule = rule.add(format!("*.{columns}.weight"), [fsdp, tensor]);
        }
        for rows in ["o_proj", "down_proj"] {
            rule = rule.add(format!("*.{rows}.weight"), [tensor, fsdp]);
        }
        // Split over tokens, the table would be read with the vectors of the whole batch.
        rule = rule.add("*embed_tokens.weight", [tensor, fsdp]);
        if !self.tied {
            rule = rule.add("*lm_head.weight", [fsdp, tensor]);
        }
        rule.otherwise(Rest(fsdp.map(|axis| Fsdp { axis, min_bytes: LEAST_BYTES })))
    }
}

/// The weights that no pattern names.
struct Rest<'a>(Option<Fsdp<'a>>);

impl PlacementRule for Rest<'_> {
    fn axes(&self, parameter: &Parameter<'_>) -> burn_tpu::Result<burn_tpu::Axes> {
        self.0.as_ref().map_or_else(|| Replicate.axes(parameter), |fsdp| fsdp.axes(parameter))
    }
}
