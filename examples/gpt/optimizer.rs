//! What happens to gradients: accumulation, clipping by their common norm, AdamW in two groups, and the learning rate.
//!
//! Gradients are f32 here, whatever the type of the weights.

use crate::model::Gpt;
use anyhow::{Context, Result, ensure};
use burn::module::{ModuleVisitor, Param, ParamId};
use burn::optim::SimpleOptimizer;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::lr_scheduler::LrScheduler;
use burn::optim::lr_scheduler::composed::{ComposedLrScheduler, ComposedLrSchedulerConfig};
use burn::optim::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::optim::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::optim::{AdamW, AdamWConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::backend::AutodiffBackend;
use burn_tpu::{TpuDevice, TpuOptimizer, WithMasterWeights};
use burn_tpu_train::{Checkpoint, Restored};
use serde::Serialize;

/// The numbers of the optimizer.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Settings {
    /// The largest learning rate
    #[arg(long, default_value_t = 1.5e-3)]
    pub rate: f64,
    /// The learning rate at the end, as a part of the largest
    #[arg(long, default_value_t = 0.1)]
    pub last_rate: f64,
    /// Steps in which the learning rate rises
    #[arg(long, default_value_t = 50)]
    pub warm_up: usize,
    /// Weight decay of the matrices; norms, biases and embeddings do not decay
    #[arg(long, default_value_t = 0.1)]
    pub decay: f32,
    /// The largest norm of all gradients together; 0 for no limit
    #[arg(long, default_value_t = 1.0)]
    pub clip: f64,
    /// The share of the first moment that a step keeps
    #[arg(long, default_value_t = 0.9)]
    pub beta_1: f32,
    /// The share of the second moment that a step keeps
    #[arg(long, default_value_t = 0.95)]
    pub beta_2: f32,
}

/// AdamW's epsilon.
pub const EPSILON: f32 = 1e-8;

impl Settings {
    /// Returns Burn's linear warm-up times Burn's cosine, over `steps` steps.
    pub fn schedule(&self, steps: usize) -> Result<ComposedLrScheduler> {
        ensure!((0.0..=1.0).contains(&self.last_rate), "--last-rate must be between 0 and 1");
        let warm_up = self.warm_up.max(1);
        let rise = LinearLrSchedulerConfig::new(1.0 / warm_up as f64, 1.0, warm_up);
        let fall = CosineAnnealingLrSchedulerConfig::new(self.rate, steps).with_min_lr(self.last_rate * self.rate);
        let schedule = ComposedLrSchedulerConfig::new().linear(rise).cosine(fall).init();
        schedule.map_err(anyhow::Error::msg).context("the schedule of the learning rate")
    }

    fn adamw(&self, decay: f32) -> AdamWConfig {
        let config = AdamWConfig::new().with_beta_1(self.beta_1).with_beta_2(self.beta_2);
        config.with_epsilon(EPSILON).with_weight_decay(decay)
    }
}

/// AdamW for two groups of weights: those that decay, and the others. The second one ends the step, so that both updates
/// are in the program of the step.
pub struct Groups<B>
where
    B: AutodiffBackend,
    WithMasterWeights<AdamW>: SimpleOptimizer<B::InnerBackend>,
{
    decayed: OptimizerAdaptor<WithMasterWeights<AdamW>, Gpt<B>, B>,
    others: TpuOptimizer<AdamW, Gpt<B>, B>,
    decayed_ids: Vec<ParamId>,
    schedule: ComposedLrScheduler,
    clip: f64,
}

impl<B> Groups<B>
where
    B: AutodiffBackend<Device = TpuDevice>,
    WithMasterWeights<AdamW>: SimpleOptimizer<B::InnerBackend>,
{
    /// Creates the optimizer of a model for a number of steps.
    pub fn new(settings: &Settings, model: &Gpt<B>, steps: usize) -> Result<Self> {
        Ok(Self {
            decayed: WithMasterWeights::adapt(settings.adamw(settings.decay).init()),
            others: TpuOptimizer::new(settings.adamw(0.0).init()),
            decayed_ids: model.decayed(),
            schedule: settings.schedule(steps)?,
            clip: settings.clip,
        })
    }

    /// Updates the weights and ends the step.
    pub fn step(&mut self, model: Gpt<B>, gradients: Gradients) -> Gpt<B> {
        let rate = self.schedule.step();
        let scale = (self.clip > 0.0).then(|| gradients.scale_to::<B>(&model, self.clip));
        let (decayed, others) = gradients.split(&model, &self.decayed_ids, scale.flatten());
        let model = self.decayed.step(rate, model, decayed);
        self.others.step(rate, model, others)
    }

    /// Adds the state of both groups and of the schedule to a checkpoint.
    pub fn save(&self, checkpoint: Checkpoint, model: &Gpt<B>) -> Checkpoint {
        let checkpoint = checkpoint.optimizer("decayed", &self.decayed, model).optimizer("others", &self.others, model);
        checkpoint.scheduler("schedule", &self.schedule)
    }

    /// Loads what [`Groups::save`] saved.
    pub fn load(&mut self, saved: &Restored, model: &Gpt<B>) -> Result<()> {
        self.decayed = saved.optimizer("decayed", self.decayed.clone(), model)?;
        self.others = saved.optimizer("others", self.others.clone(), model)?;
        self.schedule = saved.scheduler("schedule", self.schedule.clone())?;
        Ok(())
    }
}

/// The sum of the gradients of some batches, in f32.
#[derive(Default)]
pub struct Gradients(GradientsParams);

impl Gradients {
    /// Adds the gradients of a batch.
    pub fn add<B: AutodiffBackend>(&mut self, model: &Gpt<B>, gradients: GradientsParams) {
        model.visit(&mut Add { gradients, sum: &mut self.0 });
    }

    /// Returns the factor, at most 1, that makes the norm of all gradients together at most `most`.
    fn scale_to<B: AutodiffBackend>(&self, model: &Gpt<B>, most: f64) -> Option<Tensor<B::InnerBackend, 1>> {
        let mut squares = Squares::<B> { gradients: &self.0, sum: None };
        model.visit(&mut squares);
        // The small number keeps a norm of zero from being divided by.
        squares.sum.map(|sum| ((sum.sqrt() + 1e-6).recip() * most).clamp_max(1.0))
    }

    /// Returns the gradients of the weights with these ids and those of all others, both times the factor.
    fn split<B: AutodiffBackend>(
        self,
        model: &Gpt<B>,
        ids: &[ParamId],
        scale: Option<Tensor<B::InnerBackend, 1>>,
    ) -> (GradientsParams, GradientsParams) {
        let mut split =
            Split::<B> { from: self.0, ids, scale, inside: GradientsParams::new(), outside: GradientsParams::new() };
        model.visit(&mut split);
        (split.inside, split.outside)
    }
}

struct Add<'a> {
    gradients: GradientsParams,
    sum: &'a mut GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Add<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) else { return };
        let gradient = gradient.cast(DType::F32);
        let sum = match self.sum.remove::<B::InnerBackend, D>(param.id) {
            Some(sum) => sum + gradient,
            None => gradient,
        };
        self.sum.register(param.id, sum);
    }
}

struct Squares<'a, B: AutodiffBackend> {
    gradients: &'a GradientsParams,
    sum: Option<Tensor<B::InnerBackend, 1>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Squares<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(gradient) = self.gradients.get::<B::InnerBackend, D>(param.id) else { return };
        let square = gradient.square().sum();
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + square,
            None => square,
        });
    }
}

struct Split<'a, B: AutodiffBackend> {
    from: GradientsParams,
    ids: &'a [ParamId],
    scale: Option<Tensor<B::InnerBackend, 1>>,
    inside: GradientsParams,
    outside: GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Split<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(mut gradient) = self.from.remove::<B::InnerBackend, D>(param.id) else { return };
        if let Some(scale) = &self.scale {
            gradient = gradient * scale.clone().unsqueeze();
        }
        let group = if self.ids.contains(&param.id) { &mut self.inside } else { &mut self.outside };
        group.register(param.id, gradient);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GptConfig;
    use burn::backend::Autodiff;
    use burn::module::list_param_ids;
    use burn_ndarray::NdArray;

    type Nd = Autodiff<NdArray<f32>>;

    fn settings() -> Settings {
        Settings { rate: 1e-2, last_rate: 0.1, warm_up: 4, decay: 0.1, clip: 1.0, beta_1: 0.9, beta_2: 0.95 }
    }

    #[test]
    fn the_rate_rises_in_a_line_and_falls_along_a_cosine() {
        let mut schedule = settings().schedule(20).unwrap();
        let rates: Vec<f64> = (0..21).map(|_| schedule.step()).collect();
        assert!((rates[0] - 0.25e-2).abs() < 1e-9, "{rates:?}");
        let peak = rates.iter().copied().fold(0.0, f64::max);
        assert!(peak > 0.8e-2 && peak <= 1e-2 && (rates[20] - 1e-3).abs() < 1e-9, "{rates:?}");
        assert!(rates[5..].is_sorted_by(|a, b| a > b), "{rates:?}");
        assert!(Settings { last_rate: 2.0, ..settings() }.schedule(20).is_err());
    }

    #[test]
    fn gradients_are_summed_clipped_together_and_split_into_groups() {
        let device = Default::default();
        let config = GptConfig::new(7).with_layers(1).with_width(8).with_heads(2).with_sequence(4);
        let model = config.init::<Nd>(&device);
        let tokens = Tensor::from_data([[1, 2, 3, 4]], &device);
        let of_one_batch = || {
            let loss = model.loss(tokens.clone(), tokens.clone()) * 100.0;
            GradientsParams::from_grads(loss.backward(), &model)
        };
        let mut gradients = Gradients::default();
        gradients.add(&model, of_one_batch());
        let once = gradients.scale_to(&model, 1.0).unwrap().into_scalar();
        gradients.add(&model, of_one_batch());
        let twice = gradients.scale_to(&model, 1.0).unwrap();
        assert!((once / twice.clone().into_scalar() - 2.0).abs() < 1e-3, "the sum has twice the norm");
        let ids = model.decayed();
        let (decayed, others) = gradients.split(&model, &ids, Some(twice));
        assert_eq!((decayed.len(), ids.len()), (4, 4));
        assert_eq!(decayed.len() + others.len(), list_param_ids(&model).len());
        let squares = |group: &GradientsParams| {
            let mut squares = Squares::<Nd> { gradients: group, sum: None };
            model.visit(&mut squares);
            squares.sum.unwrap().into_scalar()
        };
        let norm = (squares(&decayed) + squares(&others)).sqrt();
        assert!((norm - 1.0).abs() < 1e-3, "{norm}");
    }
}
