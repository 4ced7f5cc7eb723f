//! The tensors of anything that is a Burn module: a tensor, a tuple, an array, a `Vec`, an `Option`, a model.
//!
//! Burn's own visitor passes over tensors that are not parameters. Two of a module's methods do reach every tensor, in one
//! order: `collect_devices` asks each for its device, and `fork` moves each to a device. Both arrive at the methods of this
//! backend (`float_device`, `float_to_device` and so on), which call [`visited`] and [`replaced`]. Beside its tensors, a
//! module is what its `Debug` shows: numbers, variants, lengths, the ids of its parameters.
//!
//! The state of a Burn optimizer is no module, but it can be moved to a device too: [`collect`] and [`replace_with`].

use crate::{TpuDevice, TpuTensor};
use burn_core::module::Module;
use burn_core::tensor::backend::Backend;
use burn_tpu_runtime::Tensor;
use rustc_hash::FxHasher;
use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::hash::Hasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What happens to the tensors that the thread's current traversal reaches.
enum Traversal {
    Visit(Vec<Tensor>),
    Replace(std::vec::IntoIter<Tensor>),
    /// Tensors that are moved to a device stay where they are.
    Collect(Vec<Tensor>),
    /// `Debug` shows nothing of them.
    Hide,
}

thread_local! {
    static TRAVERSAL: RefCell<Option<Traversal>> = const { RefCell::new(None) };
}

/// Notes a tensor whose device is asked for, in a traversal that visits.
pub(crate) fn visited(tensor: &TpuTensor) -> &TpuTensor {
    TRAVERSAL.with_borrow_mut(|traversal| {
        if let Some(Traversal::Visit(found)) = traversal
            && !is_empty(tensor)
        {
            found.push(tensor.0.clone());
        }
    });
    tensor
}

/// Returns whether a tensor has no element along any dim. It says nothing that its type does not, and stands in
/// [`Layers`](crate::Layers) for parameters that are elsewhere: a traversal passes over it.
fn is_empty(tensor: &TpuTensor) -> bool {
    let dims = tensor.0.dims();
    !dims.is_empty() && dims.iter().all(|&size| size == 0)
}

/// Returns the next tensor of a traversal that replaces; otherwise, what `moved` makes of a tensor.
pub(crate) fn replaced(tensor: TpuTensor, moved: impl FnOnce(TpuTensor) -> TpuTensor) -> TpuTensor {
    let next = TRAVERSAL.with_borrow_mut(|traversal| match traversal {
        Some(_) if is_empty(&tensor) => Some(tensor.0.clone()),
        Some(Traversal::Replace(tensors)) => tensors.next(),
        Some(Traversal::Collect(found)) => {
            found.push(tensor.0.clone());
            Some(tensor.0.clone())
        }
        _ => None,
    });
    next.map_or_else(|| moved(tensor), TpuTensor)
}

/// Returns whether `Debug` shows nothing of tensors.
pub(crate) fn are_hidden() -> bool {
    TRAVERSAL.with_borrow(|traversal| matches!(traversal, Some(Traversal::Hide)))
}

/// Runs `work` as a traversal, and returns what is left of it.
fn traverse<T>(traversal: Traversal, work: impl FnOnce() -> T) -> (T, Option<Traversal>) {
    /// Ends the traversal, also by a panic.
    struct Ends(Option<Traversal>);
    impl Drop for Ends {
        fn drop(&mut self) {
            TRAVERSAL.replace(self.0.take());
        }
    }
    let ends = Ends(TRAVERSAL.replace(Some(traversal)));
    let result = work();
    let left = TRAVERSAL.take();
    drop(ends);
    (result, left)
}

/// Returns the tensors whose devices `work` asks for, if they are of this backend.
pub(crate) fn visit<T>(work: impl FnOnce() -> T) -> Vec<Tensor> {
    let (_, visited) = traverse(Traversal::Visit(Vec::new()), work);
    let Some(Traversal::Visit(tensors)) = visited else { return Vec::new() };
    tensors
}

/// Returns what `Debug` shows of a module beside its tensors.
pub(crate) fn shown(module: &impl Debug) -> String {
    traverse(Traversal::Hide, || format!("{module:?}")).0
}

/// Returns what `work` returns, and the tensors that it moves to a device.
pub(crate) fn collect<T>(work: impl FnOnce() -> T) -> (T, Vec<Tensor>) {
    let (result, traversal) = traverse(Traversal::Collect(Vec::new()), work);
    let Some(Traversal::Collect(tensors)) = traversal else { return (result, Vec::new()) };
    (result, tensors)
}

/// Returns what `work` returns if each tensor that it moves to a device becomes the next of these.
pub(crate) fn replace_with<T>(tensors: Vec<Tensor>, work: impl FnOnce() -> T) -> T {
    traverse(Traversal::Replace(tensors.into_iter()), work).0
}

/// How to reach the tensors of a module, whatever its backend's type parameters are.
pub(crate) struct Leaves<M> {
    devices: fn(&M) -> Vec<TpuDevice>,
    fork: fn(M, &TpuDevice) -> M,
    /// The number of tensors that were found last, for the size of the list.
    count: AtomicUsize,
}

impl<M: Debug> Leaves<M> {
    pub(crate) fn of<B: Backend<Device = TpuDevice>>() -> Self
    where
        M: Module<B>,
    {
        let devices = |module: &M| module.collect_devices(Vec::new());
        Self { devices, fork: |module, device| module.fork(device), count: AtomicUsize::new(0) }
    }

    /// Returns the tensors. Parameters that Burn has not initialised yet are initialised.
    pub(crate) fn tensors(&self, module: &M) -> Vec<Tensor> {
        let made = Tensor::made_here();
        let found = self.visit(module);
        // An initialisation asks its own tensors for their devices.
        if Tensor::made_here() == made { found } else { self.visit(module) }
    }

    fn visit(&self, module: &M) -> Vec<Tensor> {
        let list = Vec::with_capacity(self.count.load(Relaxed));
        let (_devices, visited) = traverse(Traversal::Visit(list), || (self.devices)(module));
        let Some(Traversal::Visit(tensors)) = visited else { return Vec::new() };
        self.count.store(tensors.len(), Relaxed);
        tensors
    }

    /// Returns the module with other tensors, in the order of [`Leaves::tensors`].
    pub(crate) fn replace(&self, module: M, tensors: Vec<Tensor>) -> M {
        let Some(device) = tensors.first().map(|tensor| TpuDevice::from(tensor.device())) else { return module };
        traverse(Traversal::Replace(tensors.into_iter()), || (self.fork)(module, &device)).0
    }

    /// Returns the module with one tensor in the places of all.
    pub(super) fn hollow(&self, module: M, tensors: &[Tensor]) -> M {
        let Some(first) = tensors.first() else { return module };
        self.replace(module, vec![first.clone(); tensors.len()])
    }

    /// Returns a hash of everything about the module but its tensors.
    pub(super) fn structure(&self, module: &M) -> u64 {
        struct Hashed(FxHasher);
        impl Write for Hashed {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.write(text.as_bytes());
                Ok(())
            }
        }
        let mut hashed = Hashed(FxHasher::default());
        // Writing to a hash cannot fail.
        let (_written, _) = traverse(Traversal::Hide, || write!(hashed, "{module:?}"));
        hashed.0.finish()
    }
}
