//! Finds the line of a user's source in a stack trace.

use crate::numerics::StepPart;
use backtrace::Symbol;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::thread::Thread;

/// The crates whose frames are not shown to a user. Those of burn-tpu are in [`is_library`].
const LIBRARIES: [&str; 39] = [
    "alloc",
    "async_channel",
    "backtrace",
    "burn",
    "burn_autodiff",
    "burn_backend",
    "burn_collective",
    "burn_communication",
    "burn_core",
    "burn_dataset",
    "burn_derive",
    "burn_fusion",
    "burn_import",
    "burn_ir",
    "burn_ndarray",
    "burn_nn",
    "burn_onnx",
    "burn_optim",
    "burn_remote",
    "burn_rl",
    "burn_router",
    "burn_std",
    "burn_store",
    "burn_tensor",
    "burn_train",
    "burn_vision",
    "core",
    "crossbeam",
    "cubecl_common",
    "futures_util",
    "hashbrown",
    "libc",
    "panic_unwind",
    "parking_lot",
    "rayon",
    "rayon_core",
    "std",
    "test",
    "tokio",
];

/// The crates of burn-tpu, in which no user's line is.
const OURS: [&str; 13] = [
    "burn_tpu",
    "burn_tpu_fusion",
    "burn_tpu_graph",
    "burn_tpu_interpreter",
    "burn_tpu_kernels",
    "burn_tpu_pjrt",
    "burn_tpu_profile",
    "burn_tpu_remote",
    "burn_tpu_runtime",
    "burn_tpu_serve",
    "burn_tpu_train",
    "burn_tpu_xla",
    "burn_tpu_cli",
];

/// Who recorded an op: a stack that has not been resolved to lines, and its thread.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The address of each frame, innermost first.
    stack: Arc<[usize]>,
    thread: Thread,
}

impl Caller {
    /// Captures the calling thread's stack. This takes some microseconds, resolving it some milliseconds.
    pub(crate) fn capture() -> Self {
        let mut stack = Vec::new();
        backtrace::trace(|frame| {
            stack.push(frame.ip().addr());
            true
        });
        Self { stack: stack.into(), thread: std::thread::current() }
    }

    /// Returns a hash of the stack, which is the same for each op that the same calls record.
    pub(crate) fn stack_hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.stack.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the innermost frame in a user's crate, such as `src/train.rs:41 in app::step`. Without one it is the name of
    /// the thread. The line number is missing if the binary has no debug information.
    pub(crate) fn line(&self) -> String {
        Resolver::default().line(self)
    }
}

/// Resolves stacks, each frame once.
#[derive(Default)]
pub(crate) struct Resolver(FxHashMap<usize, Vec<Frame>>);

/// A function of a frame; a frame has several if some are inlined.
struct Frame {
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
    /// As [`Caller::line`], outside of the backward pass and of the optimizer, which may call a user's module.
    pub(crate) line: String,
    pub(crate) part: StepPart,
    /// In the backward pass: the op whose gradient it computes, as `float_sqrt`.
    pub(crate) gradient_of: Option<String>,
}

impl Resolver {
    /// Returns what [`Caller::line`] does.
    pub(crate) fn line(&mut self, caller: &Caller) -> String {
        let mut addresses = caller.stack.iter();
        let line = addresses.find_map(|&address| self.frames(address).iter().find_map(|frame| frame.line.clone()));
        line.unwrap_or_else(|| name_of(&caller.thread))
    }

    /// Returns the modules whose methods `forward` are in the stack, the outermost first: `Gpt/Block/Linear`.
    pub(crate) fn modules(&mut self, caller: &Caller) -> String {
        let mut modules: Vec<String> = Vec::new();
        for &address in &*caller.stack {
            modules.extend(self.frames(address).iter().filter_map(|frame| frame.module.clone()));
        }
        modules.dedup();
        modules.reverse();
        modules.join("/")
    }

    /// Returns where in a training step an op was recorded.
    pub(crate) fn place(&mut self, caller: &Caller) -> StepPlace {
        let (mut part, mut line, mut gradient_of) = (StepPart::Forward, None, None);
        for &address in &*caller.stack {
            for frame in self.frames(address) {
                gradient_of = gradient_of.or_else(|| frame.gradient_of.clone());
                if let Some(of) = frame.part {
                    // The user's line is the first one that is further out.
                    (part, line) = (of, None);
                }
                line = line.or_else(|| frame.line.clone());
            }
        }
        let gradient_of = gradient_of.filter(|_| part == StepPart::Backward);
        StepPlace { line: line.unwrap_or_else(|| self.line(caller)), part, gradient_of }
    }

    fn frames(&mut self, address: usize) -> &[Frame] {
        self.0.entry(address).or_insert_with(|| {
            let mut frames = Vec::new();
            backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
                let name = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
                let (module, part) = (module_of(&name, symbol.filename()), part_of(&name, symbol.filename()));
                frames.push(Frame { line: describe(symbol), module, part, gradient_of: gradient_of(&name) });
            });
            frames
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
    let ours = ["burn-tpu/src/optim/", "burn-tpu/src/compile/adamw.rs"].iter().any(|part| file.contains(part));
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

/// Returns a thread's name for a message.
pub(super) fn name_of(thread: &Thread) -> String {
    format!("on the thread {}", thread.name().unwrap_or("without a name"))
}

fn describe(symbol: &Symbol) -> Option<String> {
    let name = format!("{:#}", symbol.name()?);
    let Some(file) = symbol.filename() else { return is_users(&name).then_some(name) };
    if is_library(&name) || is_library_file(file) {
        return None;
    }
    let here = std::env::current_dir().unwrap_or_default();
    let file = file.strip_prefix(here).unwrap_or(file).display();
    Some(format!("{file}:{} in {}", symbol.lineno().unwrap_or(0), short(&name)))
}

/// Returns the crate of a function or of a trait's method (`<app::Model as …>`). An inlined function may have a bare
/// name, which has no crate.
fn crate_of(name: &str) -> Option<&str> {
    let (first, _) = name.trim_start_matches(['<', '&', '[', '(']).split_once("::")?;
    (!first.contains(['<', ' '])).then_some(first)
}

fn is_library(name: &str) -> bool {
    crate_of(name).is_some_and(|name| LIBRARIES.contains(&name) || OURS.contains(&name))
}

fn is_users(name: &str) -> bool {
    crate_of(name).is_some() && !is_library(name)
}

/// Returns whether a file belongs to the standard library (also as the component `rust-src` installs it), to a downloaded or
/// vendored crate, to burn-tpu, or to a library in another language.
fn is_library_file(file: &Path) -> bool {
    let path = file.to_string_lossy();
    let parts = ["/rustc/", "/lib/rustlib/", "/registry/src/", "/git/checkouts/", "/vendor/"];
    let fetched = parts.iter().any(|part| path.contains(part));
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/"));
    let is_in = |folder: &Path| OURS.iter().any(|of| file.starts_with(folder.join(of.replace('_', "-")).join("src")));
    let ours = is_in(workspace) || is_in(&workspace.join("crates"));
    fetched || ours || file.extension().is_none_or(|extension| extension != "rs")
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
    fn functions_of_burn_and_the_standard_library_are_skipped() {
        for name in ["burn_tpu::trace::record", "<burn_tensor::Tensor<B,D> as core::ops::Add>::add", "std::f"] {
            assert!(is_library(name) && !is_users(name), "{name}");
        }
        for name in ["app::train", "<app::Model as burn_core::Module>::forward", "burner::step"] {
            assert!(!is_library(name) && is_users(name), "{name}");
        }
        for name in ["main", "finish<1, burn_tpu::trace::record::{closure_env#0}>"] {
            assert!(!is_library(name) && !is_users(name), "{name} has no crate");
        }
    }

    #[test]
    fn files_of_libraries_and_of_burn_tpu_are_skipped() {
        let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/src/trace/record.rs");
        for file in [
            "/rustc/0123/library/core/src/ops.rs",
            "/home/a/.rustup/toolchains/stable/lib/rustlib/src/rust/library/alloc/src/vec/mod.rs",
            "/home/a/.cargo/registry/src/x/burn-0.21.0/src/lib.rs",
            "/home/a/app/vendor/burn-core/src/lib.rs",
            "./nptl/pthread_create.c",
            "../sysdeps/unix/sysv/linux/x86_64/clone3.S",
            ours,
        ] {
            assert!(is_library_file(Path::new(file)), "{file}");
        }
        assert!(!is_library_file(Path::new("/home/a/app/src/main.rs")));
    }

    /// The loop of the thread is the standard library's, and the function is this library's.
    #[test]
    fn a_stack_without_a_users_frame_names_its_thread() {
        let named = std::thread::Builder::new().name("loader".into());
        let thread = named.spawn(Caller::capture).expect("a thread").join().expect("no panic");
        assert_eq!(thread.line(), "on the thread loader");
    }

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
