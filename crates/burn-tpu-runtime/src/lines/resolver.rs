//! Reads off a stack: the line of the user's source, the part of a training step, the modules.

use super::libraries::{is_derived, is_library, is_library_file, is_of_attribute, is_users};
use super::{Stack, name_of};
use backtrace::Symbol;
use rustc_hash::FxHashMap;
use std::path::Path;

/// The part of a training step in which an op was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepPart {
    /// The forward pass, and everything that is no other part.
    Forward,
    /// Autodiff's backward pass: the line is that of `backward()`.
    Backward,
    /// The optimizer: the line is that of its `step()`.
    Optimizer,
}

impl std::fmt::Display for StepPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StepPart::Forward => "forward",
            StepPart::Backward => "backward pass",
            StepPart::Optimizer => "optimizer",
        })
    }
}

/// Resolves stacks, each frame once.
#[derive(Default)]
pub(crate) struct Resolver(FxHashMap<usize, Vec<FrameFunction>>);

/// A function of a frame.
struct FrameFunction {
    /// The line, if it is in a user's crate.
    line: Option<String>,
    /// The module whose method `forward` it is.
    module: Option<String>,
    /// The part of a step that the function belongs to, if it is one of autodiff's or an optimizer's.
    part: Option<StepPart>,
    /// The op whose gradient it computes.
    gradient_of: Option<String>,
}

/// Where in a training step an op was recorded.
#[derive(Clone, Debug)]
pub(crate) struct StepPlace {
    /// As [`Stack::line`], outside of the backward pass and of the optimizer, which may call a user's module.
    pub(crate) line: String,
    pub(crate) part: StepPart,
    /// In the backward pass: the op whose gradient it computes, as `float_sqrt`.
    pub(crate) gradient_of: Option<String>,
}

impl Resolver {
    /// Returns what [`Stack::line`] does.
    pub(crate) fn line(&mut self, stack: &Stack) -> String {
        for &address in stack.frames() {
            if let Some(line) = self.functions(address).iter().find_map(|function| function.line.clone()) {
                return line;
            }
        }
        name_of(stack.thread())
    }

    /// Returns the modules whose methods `forward` are in the stack, the outermost first: `Gpt/Block/Linear`.
    pub(crate) fn modules(&mut self, stack: &Stack) -> String {
        let mut modules: Vec<String> = Vec::new();
        for &address in stack.frames() {
            modules.extend(self.functions(address).iter().filter_map(|function| function.module.clone()));
        }
        modules.dedup();
        modules.reverse();
        modules.join("/")
    }

    /// Returns where in a training step an op was recorded.
    pub(crate) fn place(&mut self, stack: &Stack) -> StepPlace {
        let (mut part, mut line, mut gradient_of) = (StepPart::Forward, None, None);
        for &address in stack.frames() {
            for function in self.functions(address) {
                gradient_of = gradient_of.or_else(|| function.gradient_of.clone());
                if let Some(of) = function.part {
                    // The user's line is the first one that is further out.
                    (part, line) = (of, None);
                }
                line = line.or_else(|| function.line.clone());
            }
        }
        let gradient_of = gradient_of.filter(|_| part == StepPart::Backward);
        StepPlace { line: line.unwrap_or_else(|| self.line(stack)), part, gradient_of }
    }

    /// Returns the functions of a frame, innermost first: several if some are inlined.
    fn functions(&mut self, address: usize) -> &[FrameFunction] {
        self.0.entry(address).or_insert_with(|| {
            let mut functions = Vec::new();
            backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
                let name = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
                let (module, part) = (module_of(&name, symbol.filename()), part_of(&name, symbol.filename()));
                functions.push(FrameFunction { line: describe(symbol), module, part, gradient_of: gradient_of(&name) });
            });
            functions
        })
    }
}

/// Returns the type of a method that computes a module: `Linear` of `<burn_nn::Linear<B>>::forward`. Burn's modules name it
/// `forward`, or begin its name so. Debug information of lines alone has no types: then it is the name of the method's file.
fn module_of(name: &str, file: Option<&Path>) -> Option<String> {
    let named = if name.starts_with('<') { short(name) } else { without_generics(name) };
    let Some((of, method)) = named.rsplit_once("::") else {
        let stem = file.filter(|_| named.starts_with("forward")).and_then(Path::file_stem)?;
        return Some(stem.to_string_lossy().into_owned());
    };
    let of = of.rsplit("::").next()?;
    let is_type = of.starts_with(|first: char| first.is_ascii_uppercase());
    (is_type && method.starts_with("forward")).then(|| of.to_owned())
}

/// Returns the part of a training step that a function belongs to: to the backward pass if it is one of burn-autodiff's
/// functions for it, to the optimizer if it is one of burn-optim's or of the optimizers of burn-tpu.
fn part_of(name: &str, file: Option<&Path>) -> Option<StepPart> {
    let file = file.map(Path::to_string_lossy).unwrap_or_default();
    // A user's function may have their types as generic arguments.
    let path = short(name);
    let is_of = |krate: &str| path.contains(krate) || file.contains(&format!("/{}-", krate.replace('_', "-")));
    if is_of("burn_autodiff") && without_generics(name).split("::").any(|part| part == "backward") {
        return Some(StepPart::Backward);
    }
    // What calls the forward pass of a compiled step, `step/mod.rs`, is no part of the optimizer.
    let ours =
        ["burn-tpu/src/optim/", "native/src/optim/", "runtime/src/step/adamw.rs", "runtime/src/step/loss_scaling.rs"];
    let ours = ours.iter().any(|part| file.contains(part));
    (ours || is_of("burn_optim")).then_some(StepPart::Optimizer)
}

/// Returns the op whose gradient a function of burn-autodiff computes: `float_sqrt` of
/// `step<…, burn_autodiff::ops::tensor::{impl#0}::float_sqrt::Sqrt, …>`, as debug information writes it, and of
/// `<burn_autodiff::ops::tensor::<impl … for …>::float_sqrt::Sqrt as …>::backward`, which is a function's symbol.
fn gradient_of(name: &str) -> Option<String> {
    let (_, path) = name.split_once("burn_autodiff::ops::")?;
    let (module, rest) = path.split_at(path.find(['<', '>', ',', ' ']).unwrap_or(path.len()));
    let symbol = rest.starts_with("<impl ").then(|| without_generics(rest));
    let method = symbol.as_deref().or_else(|| Some(module.split_once("::{impl")?.1))?;
    let mut parts = method.split("::").skip(1);
    let op = parts.next()?;
    let is_op = op.starts_with(|first: char| first.is_ascii_lowercase()) && parts.next().is_some();
    is_op.then(|| op.to_owned())
}

fn describe(symbol: &Symbol) -> Option<String> {
    let name = format!("{:#}", symbol.name()?);
    let Some(file) = symbol.filename() else { return (is_users(&name) && !is_derived(&name)).then_some(name) };
    let line = symbol.lineno().unwrap_or(0);
    if is_library(&name) || is_library_file(file) || is_derived(&name) || is_of_attribute(file, line) {
        return None;
    }
    let here = std::env::current_dir().unwrap_or_default();
    let file = file.strip_prefix(here).unwrap_or(file).display();
    Some(format!("{file}:{line} in {}", short(&name)))
}

/// Returns a function's name without generic arguments, closures, and the trait of a method: `app::Model::step`.
fn short(name: &str) -> String {
    let plain = |name: &str| name.split('<').next().unwrap_or(name).trim_end_matches("::").to_owned();
    let method = |rest: &str| {
        let (of, method) = rest.rsplit_once(">::")?;
        Some(format!("{}::{}", plain(of.split(" as ").next()?), plain(method)))
    };
    let named = name.strip_prefix('<').and_then(method).unwrap_or_else(|| plain(name));
    let named = named.replace("::{{closure}}", "").replace("::{closure#0}", "");
    if named.is_empty() { name.to_owned() } else { named }
}

/// Returns a path without generic arguments: `app::Gpt::forward` of `app::Gpt<B>::forward::<3>`.
fn without_generics(name: &str) -> String {
    let mut depth = 0usize;
    let outside = name.chars().filter(|c| {
        depth += usize::from(*c == '<');
        let is_outside = depth == 0;
        depth = depth.saturating_sub(usize::from(*c == '>'));
        is_outside
    });
    outside.collect::<String>().trim_end_matches("::").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_the_type_of_a_method_forward() {
        let file = Some(Path::new("/app/src/block.rs"));
        for (name, module) in [
            ("<burn_nn::modules::linear::Linear<B>>::forward::<3>", Some("Linear")),
            ("app::Gpt<B>::forward_by", Some("Gpt")),
            ("app::Gpt<Autodiff<Tpu<f32>>>::forward::<3>", Some("Gpt")),
            ("<app::Block<B> as app::Layer>::forward", Some("Block")),
            ("forward<burn_tpu::Tpu>", Some("block")),
            ("app::forward", None),
            ("app::Gpt<B>::loss", None),
            ("step", None),
        ] {
            assert_eq!(module_of(name, file).as_deref(), module, "{name}");
        }
    }

    #[test]
    fn functions_of_autodiff_and_optimizers_belong_to_their_part_of_a_step() {
        let part = |name, file: Option<&str>| part_of(name, file.map(Path::new));
        let log = "<burn_autodiff::ops::tensor::Log as burn_autodiff::ops::backward::Backward<B, 1>>::backward";
        assert_eq!(part(log, None), Some(StepPart::Backward));
        let registry = "/home/a/.cargo/registry/src/x";
        let file = format!("{registry}/burn-autodiff-0.21.0/src/ops/backward.rs");
        assert_eq!(part("backward<Tpu>", Some(&file)), Some(StepPart::Backward));
        assert_eq!(part("burn_autodiff::ops::base::OpsPrep<ops::backward::Log>::finish", None), None);
        assert_eq!(part("burn_optim::optim::adamw::AdamW::step", None), Some(StepPart::Optimizer));
        let adaptor = "<burn_optim::OptimizerAdaptor<O, M, B> as burn_optim::Optimizer<M, B>>::step";
        assert_eq!(part(adaptor, None), Some(StepPart::Optimizer));
        let ours = |file: &str| part("f", Some(&format!("/home/a/burn-tpu/crates/burn-tpu-runtime/src/step/{file}")));
        assert_eq!((ours("adamw.rs"), ours("mod.rs")), (Some(StepPart::Optimizer), None));
        for users in ["app::train<burn_optim::AdamW, f32>", "train<burn_autodiff::Autodiff<B>, burn_optim::AdamW>"] {
            assert_eq!(part(users, Some("/home/a/app/src/main.rs")), None, "{users}");
        }
        let step =
            "step<Tpu<f32>, burn_autodiff::ops::tensor::{impl#0}::float_sqrt::Sqrt, burn_autodiff::graph::NodeId, 1>";
        assert_eq!(gradient_of(step).as_deref(), Some("float_sqrt"));
        let backward = "<burn_autodiff::ops::tensor::<impl Ops<Autodiff<B,C>> for Autodiff<B,C>>::float_sqrt::Sqrt as \
            burn_autodiff::ops::backward::Backward<B,1_usize>>::backward::{{closure}}";
        assert_eq!(gradient_of(backward).as_deref(), Some("float_sqrt"));
        let step = "<burn_autodiff::ops::base::OpsStep<B,T,SB,_> as burn_autodiff::graph::base::Step>::step";
        for other in ["burn_autodiff::ops::backward::unary", step] {
            assert_eq!(gradient_of(other), None, "{other}");
        }
        assert_eq!(part("app::Model::backward", Some("/home/a/app/src/main.rs")), None);
    }

    #[test]
    fn generic_arguments_are_removed_from_names() {
        assert_eq!(short("app::train<Autodiff<Tpu>>"), "app::train");
        assert_eq!(short("app::train::{{closure}}::{{closure}}"), "app::train");
        assert_eq!(short("<app::Model<B> as burn_core::Module<B>>::f"), "app::Model::f");
        assert_eq!(short("<app::Model as burn_train::TrainStep>::step::{{closure}}"), "app::Model::step");
        assert_eq!(short("step<burn_tpu::Tpu>"), "step");
    }
}
