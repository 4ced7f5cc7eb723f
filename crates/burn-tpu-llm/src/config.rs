//! What a model computes: sizes, and which of the parts that families have.
//!
//! Owns: [`Config`] and its checks; [`LoraConfig`], what an adapter adds. `hugging_face` and `gguf` read the first from
//! files, and `known` has those of public models.

mod gguf;
mod hugging_face;
mod known;
mod lora;

pub use lora::LoraConfig;

use crate::error::{LlmError, Result};

/// The families, which differ in the names of their fields and tensors and in their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama 2, 3 and 3.1, and models of the same form, such as SmolLM2.
    Llama,
    /// Mistral: Llama with a sliding window.
    Mistral,
    /// Qwen 2 and 2.5: biases of query, key and value.
    Qwen2,
    /// Qwen 3: norms of each query and key.
    Qwen3,
    /// Mixtral: Mistral with mixtures of experts.
    Mixtral,
    /// Qwen 1.5 and 2 with mixtures of experts, of which one is shared.
    Qwen2Moe,
    /// Qwen 3 with mixtures of experts.
    Qwen3Moe,
    /// Gemma 2: four norms in a layer, soft caps, every other layer with a window.
    Gemma2,
    /// Gemma 3: norms of queries and keys, five of six layers with a window.
    Gemma3,
}

/// What a decoder computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whose names the files use.
    pub family: Family,
    /// Number of distinct tokens.
    pub vocabulary: usize,
    /// Size of a token's vector.
    pub width: usize,
    /// Number of layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values, which divide `heads`.
    pub kv_heads: usize,
    /// Size of a head.
    pub head: usize,
    /// Size of the hidden layer after attention.
    pub feed_forward: usize,
    /// The mixture of experts that each layer has in place of one hidden layer.
    pub experts: Option<Experts>,
    /// The most positions that the model was made for.
    pub context: usize,
    /// What is added to the mean square in norms.
    pub norm_epsilon: f64,
    /// Whether Hugging Face's files have the weights of norms less one, as Gemma's.
    pub norm_less_one: bool,
    /// The function of the gate.
    pub activation: Activation,
    /// The rotation of queries and keys.
    pub rope: Rope,
    /// The rotation in layers with a window, where it differs.
    pub window_rope: Option<Rope>,
    /// The window of each layer: how many positions a query sees, with its own; `None` for all before it.
    pub windows: Vec<Option<usize>>,
    /// Which products of attention have a bias.
    pub attention_bias: AttentionBias,
    /// Whether the products after attention have a bias.
    pub feed_forward_bias: bool,
    /// Whether each head's queries and keys have a norm.
    pub head_norms: bool,
    /// Whether attention and feed-forward have a norm after them too.
    pub post_norms: bool,
    /// What scores are multiplied by, in place of `1 / sqrt(head)`.
    pub query_scale: f64,
    /// The largest absolute score: `cap * tanh(score / cap)`.
    pub score_cap: Option<f64>,
    /// The largest absolute logit.
    pub logit_cap: Option<f64>,
    /// What the vectors of tokens are multiplied by.
    pub embedding_scale: Option<f64>,
    /// Whether the logits are products with the vectors of tokens.
    pub tied: bool,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Among how many the router chooses.
    pub count: usize,
    /// How many it chooses for a token.
    pub per_token: usize,
    /// Size of the hidden layer of each.
    pub feed_forward: usize,
    /// Size of the hidden layer of an expert that counts for every token.
    pub shared: Option<usize>,
    /// Whether the shares of those that are chosen are divided by their sum.
    pub normalised: bool,
}

/// The function of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// GELU in its approximation by tanh.
    GeluTanh,
}

/// Which products of attention have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionBias {
    /// None of them.
    None,
    /// Those of query, key and value.
    Inputs,
    /// Those of query, key, value and output.
    All,
}

/// A rotary position embedding ([Su et al.](https://arxiv.org/abs/2104.09864)).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// The base of the frequencies.
    pub theta: f64,
    /// How the frequencies are stretched for longer texts.
    pub scaling: Scaling,
}

/// How frequencies are stretched.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All are divided by a factor ([Chen et al.](https://arxiv.org/abs/2306.15595)).
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Each is divided by its own factor, which the file has.
    Factors(Vec<f32>),
    /// Llama 3.1's: low frequencies are divided, high ones are not, and those between are interpolated
    /// ([its model definition](https://github.com/meta-llama/llama-models)).
    Llama3 {
        /// What low frequencies are divided by.
        factor: f64,
        /// A wave longer than `original / low` is low.
        low: f64,
        /// A wave shorter than `original / high` is high.
        high: f64,
        /// The context that the model was first trained with.
        original: f64,
    },
    /// YaRN ([Peng et al.](https://arxiv.org/abs/2309.00071)).
    Yarn {
        /// What low frequencies are divided by.
        factor: f64,
        /// The context that the model was first trained with.
        original: f64,
        /// Rotations over the original context from which a frequency is high.
        fast: f64,
        /// Rotations up to which it is low.
        slow: f64,
        /// What rotated queries and keys are multiplied by.
        attention: f64,
    },
}

impl Config {
    /// Checks that the sizes fit each other.
    ///
    /// # Errors
    /// [`LlmError::Config`], with the sizes.
    pub fn check(&self) -> Result<()> {
        let sizes = [self.vocabulary, self.width, self.layers, self.heads, self.kv_heads, self.head, self.feed_forward];
        if sizes.contains(&0) || self.context == 0 {
            return Err(LlmError::Config(format!("has a size of 0: {self:?}")));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let (heads, kv_heads) = (self.heads, self.kv_heads);
            return Err(LlmError::Config(format!(
                "has {heads} heads of queries, no multiple of its {kv_heads} of keys"
            )));
        }
        if !self.head.is_multiple_of(2) {
            return Err(LlmError::Config(format!("has heads of {}: rotation needs pairs", self.head)));
        }
        if self.windows.len() != self.layers || self.windows.contains(&Some(0)) {
            let (windows, layers) = (self.windows.len(), self.layers);
            return Err(LlmError::Config(format!("names windows for {windows} of {layers} layers, or one of 0")));
        }
        if let Some(experts) = &self.experts {
            let Experts { count, per_token, feed_forward, .. } = *experts;
            if per_token == 0 || per_token > count || feed_forward == 0 || experts.shared == Some(0) {
                return Err(LlmError::Config(format!("has experts that are none: {experts:?}")));
            }
        }
        for rope in std::iter::once(&self.rope).chain(&self.window_rope) {
            rope.check(self.head)?;
        }
        Ok(())
    }

    /// Returns the rotation of a layer.
    pub(crate) fn rope_of(&self, layer: usize) -> &Rope {
        let local = self.windows[layer].and(self.window_rope.as_ref());
        local.unwrap_or(&self.rope)
    }
}

impl Family {
    /// Returns Hugging Face's name of a parameter or module, whose modules have these names in this crate.
    pub(crate) fn named<'n>(self, names: impl IntoIterator<Item = &'n str>) -> String {
        let named = |name| match (self, name) {
            (Self::Mixtral, "mlp") => "block_sparse_moe",
            (Self::Mixtral, "gate_proj") => "w1",
            (Self::Mixtral, "up_proj") => "w3",
            (Self::Mixtral, "down_proj") => "w2",
            _ => name,
        };
        names.into_iter().map(named).collect::<Vec<_>>().join(".")
    }
}

impl Rope {
    fn check(&self, head: usize) -> Result<()> {
        if self.theta <= 0.0 {
            return Err(LlmError::Config(format!("has a rope theta of {}", self.theta)));
        }
        match &self.scaling {
            Scaling::Factors(factors) if factors.len() != head / 2 => Err(LlmError::Config(format!(
                "has {} factors of frequencies for heads of {head}, which have {}",
                factors.len(),
                head / 2
            ))),
            _ => Ok(()),
        }
    }
}
