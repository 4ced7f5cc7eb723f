//! Deep Q-learning: small tensors, one action read back per step, and a batch of transitions stacked per step.

use crate::cart::{ACTIONS, Cart, STATE};
use crate::numbers::Numbers;
use crate::programs::Options;
use crate::{SEED, weights};
use burn::module::{AutodiffModule, Param, ParamId};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::activation::relu;
use burn::tensor::backend::AutodiffBackend;
use burn_flex::{Flex, FlexDevice};

const BATCH: usize = 32;
const HIDDEN: usize = 64;
const RATE: f64 = 1e-3;
/// The factor of a reward one step later.
const DISCOUNT: f64 = 0.99;
/// The share of the policy's weights in an update of the target network.
const SOFT: f64 = 0.005;
/// The replay buffer holds this many transitions.
const MEMORY: usize = 10_000;

/// Three linear layers, from a state to the value of each action.
#[derive(Module, Debug)]
struct Policy<B: Backend> {
    input: Linear<B>,
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Policy<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            input: LinearConfig::new(STATE, HIDDEN).init(device),
            hidden: LinearConfig::new(HIDDEN, HIDDEN).init(device),
            output: LinearConfig::new(HIDDEN, ACTIONS).init(device),
        }
    }

    /// Maps `[batch, state]` to `[batch, actions]`.
    fn forward(&self, states: Tensor<B, 2>) -> Tensor<B, 2> {
        let x = relu(self.input.forward(states));
        self.output.forward(relu(self.hidden.forward(x)))
    }

    /// Moves the weights a little towards those of `policy`.
    fn follow(self, policy: &Self) -> Self {
        Self {
            input: follow_layer(self.input, &policy.input),
            hidden: follow_layer(self.hidden, &policy.hidden),
            output: follow_layer(self.output, &policy.output),
        }
    }
}

fn follow_layer<B: Backend>(layer: Linear<B>, policy: &Linear<B>) -> Linear<B> {
    let bias = layer.bias.zip(policy.bias.as_ref()).map(|(bias, policy)| follow_param(&bias, policy));
    Linear { weight: follow_param(&layer.weight, &policy.weight), bias }
}

fn follow_param<B: Backend, const D: usize>(
    param: &Param<Tensor<B, D>>,
    policy: &Param<Tensor<B, D>>,
) -> Param<Tensor<B, D>> {
    Param::initialized(ParamId::new(), param.val() * (1.0 - SOFT) + policy.val() * SOFT)
}

#[derive(Clone, Copy)]
struct Transition {
    state: [f32; STATE],
    action: usize,
    next: [f32; STATE],
    reward: f32,
    done: bool,
}

struct Agent<B: AutodiffBackend> {
    policy: Policy<B>,
    target: Policy<B::InnerBackend>,
    optimizer: OptimizerAdaptor<Adam, Policy<B>, B>,
    memory: Vec<Transition>,
    numbers: Numbers,
    device: B::Device,
}

impl<B: AutodiffBackend> Agent<B> {
    fn new(device: &B::Device) -> Self {
        let policy = weights::same(Policy::<Flex>::new(&FlexDevice), Policy::<B>::new(device), device);
        let (target, optimizer) = (policy.valid(), AdamConfig::new().init());
        Self { policy, target, optimizer, memory: Vec::new(), numbers: Numbers::new(SEED), device: device.clone() }
    }

    /// Returns a random action, or the best one: random ones become rare within the first 2,000 steps.
    fn act(&mut self, state: [f32; STATE], step: usize) -> usize {
        let epsilon = 0.05 + 0.85 * (-(step as f32) / 1000.0).exp();
        if self.numbers.unit() < epsilon {
            return self.numbers.within(0..ACTIONS);
        }
        let state = Tensor::<B::InnerBackend, 1>::from_floats(state, &self.device).unsqueeze();
        let best = self.policy.valid().forward(state).argmax(1);
        best.into_data().iter::<i64>().next().expect("there is one state") as usize
    }

    fn remember(&mut self, transition: Transition) {
        if self.memory.len() == MEMORY {
            self.memory.remove(0);
        }
        self.memory.push(transition);
    }

    fn sample(&mut self) -> Vec<Transition> {
        (0..BATCH).map(|_| self.memory[self.numbers.within(0..self.memory.len())]).collect()
    }

    /// Trains on a batch of transitions and returns its loss.
    fn learn(&mut self) -> Tensor<B, 1> {
        let batch = self.sample();
        let targets = self.targets(&batch);
        let states = stack(&batch, &self.device, |transition| transition.state);
        let actions =
            |transition: &Transition| Tensor::<B, 1, Int>::from_ints([transition.action as i32], &self.device);
        let actions = Tensor::stack::<2>(batch.iter().map(actions).collect(), 0);
        let values = self.policy.forward(states).gather(1, actions);
        let loss = MseLoss::new().forward(values, Tensor::from_inner(targets), Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &self.policy);
        self.policy = self.optimizer.step(RATE, self.policy.clone(), gradients);
        self.target = self.target.clone().follow(&self.policy.valid());
        loss
    }

    /// Returns the values that the actions should have, `[batch, 1]`.
    fn targets(&self, batch: &[Transition]) -> Tensor<B::InnerBackend, 2> {
        let next = stack(batch, &self.device, |transition| transition.next);
        let rewards = stack(batch, &self.device, |transition| [transition.reward]);
        let going_on = stack(batch, &self.device, |transition| [if transition.done { 0.0 } else { 1.0 }]);
        rewards + self.target.forward(next).max_dim(1) * going_on * DISCOUNT
    }
}

/// Returns a row per transition, each a tensor of its own first.
fn stack<B: Backend, const N: usize>(
    batch: &[Transition],
    device: &B::Device,
    row: impl Fn(&Transition) -> [f32; N],
) -> Tensor<B, 2> {
    let row = |transition: &Transition| Tensor::<B, 1>::from_floats(row(transition), device);
    Tensor::stack(batch.iter().map(row).collect(), 0)
}

/// Trains for this many steps of the environment. Reads the loss at the end of each episode, unless `--read-every` says
/// otherwise.
pub fn train<B: AutodiffBackend>(steps: usize, options: &Options, device: &B::Device) -> Vec<f64> {
    let mut agent = Agent::<B>::new(device);
    let mut cart = Cart::new(SEED);
    let mut state = cart.reset();
    let mut losses = Vec::new();
    for step in 0..steps {
        let action = agent.act(state, step);
        let outcome = cart.push(action);
        let next = outcome.state;
        agent.remember(Transition { state, action, next, reward: outcome.reward, done: outcome.done });
        state = if outcome.done { cart.reset() } else { next };
        if agent.memory.len() < BATCH {
            continue;
        }
        let loss = agent.learn();
        if options.read_every.map_or(outcome.done, |_| options.reads(step)) {
            losses.push(loss.into_scalar().elem());
        }
    }
    losses
}
