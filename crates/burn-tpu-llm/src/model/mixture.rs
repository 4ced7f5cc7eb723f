//! What a layer computes after attention: one feed-forward, or a mixture of some.

use super::blocks::Sorted;
use super::capacity::{Rooms, room};
use super::division::{Division, mesh_of};
use super::exchange::{AXIS as EXPERT_AXIS, Exchange};
use super::experts::FeedForwards;
use super::feed_forward::FeedForward;
use super::on_tpu::{has_ops, is_native};
use super::product::Product;
use super::projection::Projection;
use super::router::{Routing, number_of, numbers};
use crate::config::{Config, Experts};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::sigmoid;

/// The least and the most rows of a block. A TPU multiplies so many rows with a matrix in the time it takes to read it.
const LEAST_BLOCK: usize = 8;
const MOST_BLOCK: usize = 512;

/// The rows of an expert from which on a TPU sorts them: with fewer, the time is that of reading the weights.
const LEAST_OF_KERNEL: usize = 32;

/// Fewer choices than this are computed one by one, if they are fewer than the experts.
const MOST_ALONE: usize = 17;

/// Of so few experts, each is a product of its own, where chips do not share them: that takes less memory than one product of
/// all.
const MOST_IN_TURNS: usize = 16;

/// How some rows are computed.
enum Way {
    Every,
    OneByOne,
    /// In blocks of so many rows, where there are no kernels.
    Sorted(usize, Division),
    Rooms {
        group: usize,
        room: usize,
    },
}

/// Returns the mean over rows of the square of the logarithm of the sum of exponentials of logits `[rows, experts]`, `[1]`.
fn z_loss<B: Backend>(logits: Tensor<B, 2>) -> Tensor<B, 1> {
    let largest = logits.clone().detach().max_dim(1);
    let sum = (logits - largest.clone()).exp().sum_dim(1).log() + largest;
    (sum.clone() * sum).mean()
}

/// What a layer computes after attention.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "a layer has one, and a decoder some dozens of layers")]
pub enum Mlp<B: Backend> {
    /// One feed-forward.
    Dense(FeedForward<B>),
    /// Several feed-forwards. The router chooses a few of them for each token.
    Mixture(Mixture<B>),
}

impl<B: Backend> Mlp<B> {
    /// Creates it with random weights.
    pub fn new(config: &Config, device: &B::Device) -> Self {
        match &config.experts {
            Some(experts) => Self::Mixture(Mixture::new(config, experts, device)),
            None => Self::Dense(FeedForward::new(config, config.feed_forward, device)),
        }
    }

    /// Maps `[batch, length, width]` to the same shape.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.pass(x, Pass { exchange: None, sums: &mut None })
    }

    /// Maps `[batch, length, width]` to the same shape.
    pub(super) fn pass(&self, x: Tensor<B, 3>, pass: Pass<'_, B>) -> Tensor<B, 3> {
        match self {
            Self::Dense(feed_forward) => feed_forward.forward(x),
            Self::Mixture(mixture) => mixture.pass(x, pass),
        }
    }

    /// Returns the products that an adapter may change with their names within a layer.
    pub(super) fn products(&mut self) -> Vec<(Vec<String>, Product<'_, B>)> {
        match self {
            Self::Dense(feed_forward) => feed_forward.products("mlp").collect(),
            Self::Mixture(mixture) => {
                let mut all = mixture.experts.products("mlp.experts");
                let shared = mixture.shared_expert.as_mut();
                all.extend(shared.into_iter().flat_map(|expert| expert.products("mlp.shared_expert")));
                all
            }
        }
    }
}

/// How a mixture computes the experts that its router has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Dispatch {
    /// What is best for the number of tokens. It computes what the router says. On a mesh that is one of the next two.
    #[default]
    Auto,
    /// Every expert for every token; those that are not chosen count 0.
    Every,
    /// The chosen experts alone: tokens sorted by expert, in kernels on TPUs, elsewhere in blocks of rows, each of which reads
    /// the weights of one expert. It computes what the router says.
    ///
    /// On a mesh, every chip computes its experts for the tokens of all chips along the axis `expert`, and the results of
    /// these are added up. It has room for all choices of these tokens, as if all were for its experts. [`Dispatch::Every`]
    /// is in its place on a mesh with chips along other axes than `expert` and those of batches, with sizes that these do not
    /// divide, and with experts that have biases, an adapter or few bits.
    Sorted {
        /// The rows of a block, on one chip that is no TPU.
        block: usize,
    },
    /// The chosen experts alone, each for at most `factor` times its part of the choices of a group of tokens; what is more
    /// is dropped: it counts 0. A mesh with an axis `expert` exchanges them between its chips, and nothing else.
    Capacity {
        /// 1 has room for as many choices as there are; with `experts / per_token` and above nothing is dropped.
        factor: f64,
        /// The tokens of a group, which follow each other in a row of the batch: all of the row, if they do not divide it.
        group: usize,
    },
}

/// What the routers of a decoder's mixtures say of a batch: means over its layers, `[1]` in f32.
#[derive(Clone, Debug)]
pub struct RouterReport<B: Backend> {
    /// How unevenly experts are chosen ([Fedus et al.](https://arxiv.org/abs/2101.03961)): the sum over experts of the share
    /// of tokens that choose it times its mean likelihood, times the number of experts. It is at least about the number of
    /// experts of a token, which is its value where all are chosen alike, as in Hugging Face's `load_balancing_loss_func`.
    pub balance: Tensor<B, 1>,
    /// How large the logits are ([Zoph et al.](https://arxiv.org/abs/2202.08906)): the mean square of the logarithm of the
    /// sum of their exponentials.
    pub z: Tensor<B, 1>,
    /// The share of choices that [`Dispatch::Capacity`] has dropped.
    pub dropped: Tensor<B, 1>,
}

impl<B: Backend> RouterReport<B> {
    /// Returns the sums of some layers, `[3]`, as means.
    pub(super) fn of(sums: Tensor<B, 1>, layers: usize) -> Self {
        let means = sums.div_scalar(layers as f64);
        let [balance, z, dropped] = [0, 1, 2].map(|at| means.clone().slice_dim(0, at..at + 1));
        Self { balance, z, dropped }
    }
}

/// What a layer's mixture needs beside its input.
pub(super) struct Pass<'p, B: Backend> {
    pub(super) exchange: Option<&'p Exchange<B>>,
    /// Sums of what routers say, `[3]` in f32, if they are wanted.
    pub(super) sums: &'p mut Option<Tensor<B, 1>>,
}

/// A mixture of experts ([Shazeer et al.](https://arxiv.org/abs/1701.06538);
/// [Mixtral](https://arxiv.org/abs/2401.04088); [Qwen](https://arxiv.org/abs/2505.09388)): the feed-forwards that a
/// router prefers for a token count for it, each with its share.
#[derive(Module, Debug)]
pub struct Mixture<B: Backend> {
    /// The router, `[width, experts]`.
    pub gate: Projection<B>,
    /// The feed-forwards among which the router chooses.
    pub experts: FeedForwards<B>,
    /// A feed-forward that counts for every token.
    pub shared_expert: Option<FeedForward<B>>,
    /// How much that one counts, `[width, 1]`.
    pub shared_expert_gate: Option<Projection<B>>,
    per_token: usize,
    normalised: bool,
    #[module(skip)]
    pub(super) dispatch: Dispatch,
}

impl<B: Backend> Mixture<B> {
    /// Creates a mixture with random weights.
    pub fn new(config: &Config, experts: &Experts, device: &B::Device) -> Self {
        let width = config.width;
        Self {
            gate: Projection::new(width, experts.count, false, device),
            experts: FeedForwards::new(config, experts.count, experts.feed_forward, device),
            shared_expert: experts.shared.map(|hidden| FeedForward::new(config, hidden, device)),
            shared_expert_gate: experts.shared.map(|_| Projection::new(width, 1, false, device)),
            per_token: experts.per_token,
            normalised: experts.normalised,
            dispatch: Dispatch::Auto,
        }
    }

    /// Returns the mixture with another way to compute its experts.
    pub fn with_dispatch(self, dispatch: Dispatch) -> Self {
        Self { dispatch, ..self }
    }

    /// Maps `[batch, length, width]` to the same shape.
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.pass(x, Pass { exchange: None, sums: &mut None })
    }

    fn pass(&self, x: Tensor<B, 3>, pass: Pass<'_, B>) -> Tensor<B, 3> {
        let [batch, length, width] = x.dims();
        let logits = self.gate.forward(x.clone());
        let experts = logits.dims()[2];
        let mut logits = logits.reshape([batch * length, experts]).cast(DType::F32);
        if let Some(exchange) = pass.exchange {
            logits = exchange.rows_by_tokens(logits);
        }
        let routing = Routing::new(logits.clone(), self.per_token, self.normalised);
        let rows = x.clone().reshape([batch * length, width]);
        let (sum, dropped) = match self.way(length, batch * length, experts, &x.device()) {
            Way::Rooms { group, room } => {
                let rooms = Rooms::new(&routing, group, room);
                let sum = rooms.run(rows, pass.exchange, |rows| match self.experts.chosen(None) {
                    Some(all) => all.forward(rows),
                    None => rows,
                });
                (sum, pass.sums.is_some().then(|| rooms.dropped(self.per_token)))
            }
            way => (self.chosen_experts(rows, &routing, way, pass.exchange), None),
        };
        if let Some(sums) = pass.sums.take() {
            let dropped = dropped.unwrap_or_else(|| Tensor::zeros([1], (&x.device(), DType::F32)));
            *pass.sums = Some(sums + Tensor::cat(vec![routing.balance(), z_loss(logits), dropped], 0));
        }
        let sum = sum.reshape([batch, length, width]);
        match (&self.shared_expert, &self.shared_expert_gate) {
            (Some(expert), Some(gate)) => sum + expert.forward(x.clone()) * sigmoid(gate.forward(x)),
            _ => sum,
        }
    }

    /// Maps `[rows, width]` to the sum of each row's experts, `[rows, width]`.
    fn chosen_experts(
        &self,
        x: Tensor<B, 2>,
        routing: &Routing<B>,
        way: Way,
        exchange: Option<&Exchange<B>>,
    ) -> Tensor<B, 2> {
        match way {
            Way::OneByOne => self.one_by_one(x, routing),
            Way::Sorted(block, division) => match Sorted::new(routing, division, exchange) {
                Some(sorted) => {
                    let y = self.sorted(x.clone(), &sorted, (division == Division::WHOLE).then_some(block));
                    y.unwrap_or_else(|| self.every(x, routing))
                }
                None => self.every(x, routing),
            },
            Way::Every | Way::Rooms { .. } => self.every(x, routing),
        }
    }

    /// Computes every expert.
    fn every(&self, x: Tensor<B, 2>, routing: &Routing<B>) -> Tensor<B, 2> {
        let experts = routing.shares.dims()[1];
        let shares = routing.shares.clone().cast(x.dtype()).transpose().unsqueeze_dim(2);
        let is_split = mesh_of::<B>(&x.device()).is_some_and(|(_, mesh)| mesh.names().contains(&EXPERT_AXIS));
        if experts <= MOST_IN_TURNS && !is_split {
            self.experts.in_turns(x.unsqueeze(), shares)
        } else {
            self.experts.all(x, shares)
        }
    }

    /// Computes the chosen experts of sorted rows; one chip without kernels has blocks of so many. `None` if the backend and
    /// the experts have no form for it.
    fn sorted(&self, x: Tensor<B, 2>, sorted: &Sorted<B>, block: Option<usize>) -> Option<Tensor<B, 2>> {
        let by_ops = block.is_none() || is_native::<B>(&x.device());
        let y = by_ops.then(|| self.experts.sorted(x.clone(), sorted)).flatten();
        let y = y.or_else(|| self.experts.in_blocks(x, sorted, block?))?;
        Some(sorted.combine(y))
    }

    fn way(&self, length: usize, rows: usize, experts: usize, device: &B::Device) -> Way {
        let choices = rows * self.per_token;
        match self.dispatch {
            // Matrices in few bits are no stacks.
            _ if self.experts.has_few_bits() => Way::Every,
            Dispatch::Every => Way::Every,
            Dispatch::Sorted { block } => {
                self.division(rows, experts, device).map_or(Way::Every, |division| Way::Sorted(block.max(1), division))
            }
            Dispatch::Capacity { factor, group } => {
                let group = if group > 0 && length.is_multiple_of(group) { group } else { length };
                Way::Rooms { group, room: room(factor, group, self.per_token, experts) }
            }
            Dispatch::Auto if choices < experts.min(MOST_ALONE) && mesh_of::<B>(device).is_none() => Way::OneByOne,
            Dispatch::Auto => match self.division(rows, experts, device) {
                Some(division) => self.best_way(rows, experts, division, is_native::<B>(device)),
                None => Way::Every,
            },
        }
    }

    /// Returns whether to sort so many rows, or to compute every expert.
    fn best_way(&self, rows: usize, experts: usize, division: Division, is_native: bool) -> Way {
        let (rows, own) = (rows / division.groups, experts / division.parts);
        let block = (rows * self.per_token / experts).next_power_of_two().clamp(LEAST_BLOCK, MOST_BLOCK);
        // A TPU's kernel wastes nothing, and reads as many weights as every expert does.
        let is_better = match is_native {
            true => rows * self.per_token >= experts * LEAST_OF_KERNEL,
            false => rows * own >= 2 * (rows * self.per_token.min(own) + block * own),
        };
        if is_better { Way::Sorted(block, division) } else { Way::Every }
    }

    /// Returns how a device divides sorted rows; `None` for a mesh that cannot.
    fn division(&self, rows: usize, experts: usize, device: &B::Device) -> Option<Division> {
        let division = Division::of::<B>(device, rows, experts)?;
        let is_whole = division == Division::WHOLE;
        (is_whole || has_ops::<B>() && self.experts.has_weights_alone()).then_some(division)
    }

    /// Computes each choice for itself, which reads the weights of its expert alone.
    fn one_by_one(&self, x: Tensor<B, 2>, routing: &Routing<B>) -> Tensor<B, 2> {
        let choices = routing.choices();
        let ([rows, per_token, experts], dtype) = (choices.dims(), x.dtype());
        let number = number_of(&choices, numbers::<B>(experts, &x.device()).unsqueeze());
        let shares = routing.shares_of(&choices).cast(dtype);
        let mut sums = Vec::new();
        for row in 0..rows {
            let x = x.clone().slice_dim(0, row..row + 1).unsqueeze::<3>();
            let mut sum: Option<Tensor<B, 2>> = None;
            for choice in 0..per_token {
                let place = [row..row + 1, choice..choice + 1];
                let Some(expert) = self.experts.chosen(Some(&number.clone().slice(place.clone()).reshape([1]))) else {
                    continue;
                };
                let y = expert.forward(x.clone()).squeeze_dim::<2>(0) * shares.clone().slice(place);
                sum = Some(sum.map_or(y.clone(), |sum| sum + y));
            }
            sums.extend(sum);
        }
        Tensor::cat(sums, 0)
    }
}
