//! Where the weights of a decoder live on a mesh.

use crate::config::Config;
use burn_tpu::{Fsdp, Patterns, PlacementRule};

/// Smaller weights are on every chip: to gather them costs more than their memory is worth.
const LEAST_BYTES: usize = 64 << 10;

impl Config {
    /// Returns the rule that splits a decoder's weights over axes of a mesh, for [`burn_tpu::place`].
    ///
    /// `tensor` splits the heads and the hidden layers, so that a layer's two pairs of products need one exchange each
    /// ([Shoeybi et al.](https://arxiv.org/abs/1909.08053)); the tokens of the vocabulary too. `fsdp` splits what is left
    /// of each weight, which is gathered where it is used. `expert` splits the experts of mixtures.
    pub fn placement<'a>(
        &self,
        tensor: Option<&'a str>,
        fsdp: Option<&'a str>,
        expert: Option<&'a str>,
    ) -> impl PlacementRule + use<'a> {
        let mut rule = Patterns::new();
        for columns in ["gate_proj", "up_proj"] {
            rule = rule.add(format!("*.experts.{columns}.weight"), [expert, fsdp, tensor]);
        }
        rule = rule.add("*.experts.down_proj.weight", [expert, tensor, fsdp]);
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
        rule.otherwise(fsdp.map(|axis| Fsdp { axis, min_bytes: LEAST_BYTES }))
    }
}
