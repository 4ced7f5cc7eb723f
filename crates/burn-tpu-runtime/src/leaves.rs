//! The tensors of anything that a framework can take apart: a tensor, a tuple, an array, a `Vec`, an `Option`, a model.
//!
//! A framework's own visitor may pass over some tensors. Two of a module's methods reach every tensor, in one order:
//! one asks each for its device, the other moves each to a device. Both arrive at the methods of the front end's
//! tensors, which call [`visited`] and [`replaced`]. Beside its tensors, a module is what its `Debug` shows: numbers,
//! variants, lengths, the ids of its parameters.
//!
//! The state of an optimizer is no module, but it can be moved to a device too: [`collect`] and [`replace_with`].

use crate::{Device, Tensor};
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
pub fn visited(tensor: &Tensor) {
    TRAVERSAL.with_borrow_mut(|traversal| {
        if let Some(Traversal::Visit(found)) = traversal
            && !is_empty(tensor)
        {
            found.push(tensor.clone());
        }
    });
}

/// Returns whether a tensor has no element along any dim. It says nothing that its type does not, and takes the place
/// of parameters that are elsewhere, in stacked layers: a traversal passes over it.
fn is_empty(tensor: &Tensor) -> bool {
    let dims = tensor.dims();
    !dims.is_empty() && dims.iter().all(|&size| size == 0)
}

/// Returns the next tensor of a traversal that replaces; otherwise, what `moved` makes of a tensor.
pub fn replaced(tensor: Tensor, moved: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    let next = TRAVERSAL.with_borrow_mut(|traversal| match traversal {
        Some(_) if is_empty(&tensor) => Some(tensor.clone()),
        Some(Traversal::Replace(tensors)) => tensors.next(),
        Some(Traversal::Collect(found)) => {
            found.push(tensor.clone());
            Some(tensor.clone())
        }
        _ => None,
    });
    next.unwrap_or_else(|| moved(tensor))
}

/// Returns whether `Debug` shows nothing of tensors.
pub fn are_hidden() -> bool {
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

/// Returns the tensors whose devices `work` asks for.
pub fn visit<T>(work: impl FnOnce() -> T) -> Vec<Tensor> {
    visit_into(Vec::new(), work)
}

fn visit_into<T>(list: Vec<Tensor>, work: impl FnOnce() -> T) -> Vec<Tensor> {
    let (_, visited) = traverse(Traversal::Visit(list), work);
    let Some(Traversal::Visit(tensors)) = visited else { return Vec::new() };
    tensors
}

/// Returns the tensors whose devices `work` asks for, in a second visit if the first one makes tensors: an
/// initialisation asks its own tensors for their devices.
pub fn initialised<T>(work: impl Fn() -> T) -> Vec<Tensor> {
    initialised_into(0, work)
}

fn initialised_into<T>(capacity: usize, work: impl Fn() -> T) -> Vec<Tensor> {
    let made = Tensor::made_here();
    let found = visit_into(Vec::with_capacity(capacity), &work);
    if Tensor::made_here() == made { found } else { visit(work) }
}

/// Returns what `Debug` shows of a module beside its tensors.
pub fn shown(module: &impl Debug) -> String {
    traverse(Traversal::Hide, || format!("{module:?}")).0
}

/// Returns what `Debug` shows of a module beside its tensors, without the letters and digits after each of these marks.
pub fn shown_without(module: &impl Debug, marks: &[&str]) -> String {
    marks.iter().fold(shown(module), |shown, mark| {
        let mut parts = shown.split(mark);
        let mut left = parts.next().unwrap_or_default().to_owned();
        left.extend(parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_alphanumeric())));
        left
    })
}

/// Returns whether a module has running statistics, which Burn shares among its clones and changes in place.
pub fn has_running_statistics(module: &impl Debug) -> bool {
    shown(module).contains("RunningState {")
}

/// Returns what `work` returns, and the tensors that it moves to a device.
pub fn collect<T>(work: impl FnOnce() -> T) -> (T, Vec<Tensor>) {
    let (result, traversal) = traverse(Traversal::Collect(Vec::new()), work);
    let Some(Traversal::Collect(tensors)) = traversal else { return (result, Vec::new()) };
    (result, tensors)
}

/// Returns what `work` returns if each tensor that it moves to a device becomes the next of these.
pub fn replace_with<T>(tensors: Vec<Tensor>, work: impl FnOnce() -> T) -> T {
    traverse(Traversal::Replace(tensors.into_iter()), work).0
}

/// Asks each tensor of a value for its device.
type Visit<M> = Box<dyn Fn(&M) + Send + Sync>;
/// Moves each tensor of a value to a device.
type Move<M> = Box<dyn Fn(M, Device) -> M + Send + Sync>;

/// How to reach the tensors of a value.
pub struct Leaves<M> {
    visit: Visit<M>,
    moved: Move<M>,
    /// The number of tensors that were found last, for the size of the list.
    count: AtomicUsize,
}

impl<M: Debug> Leaves<M> {
    /// Takes what asks each tensor of a value for its device, and what moves each to a device, in the same order.
    pub fn new(
        visit: impl Fn(&M) + Send + Sync + 'static,
        moved: impl Fn(M, Device) -> M + Send + Sync + 'static,
    ) -> Self {
        Self { visit: Box::new(visit), moved: Box::new(moved), count: AtomicUsize::new(0) }
    }

    /// Returns the tensors. If the visit initialises some, all are visited again.
    pub fn tensors(&self, value: &M) -> Vec<Tensor> {
        let tensors = initialised_into(self.count.load(Relaxed), || (self.visit)(value));
        self.count.store(tensors.len(), Relaxed);
        tensors
    }

    /// Returns the value with other tensors, in the order of [`Leaves::tensors`].
    pub fn replace(&self, value: M, tensors: Vec<Tensor>) -> M {
        let Some(device) = tensors.first().map(Tensor::device) else { return value };
        traverse(Traversal::Replace(tensors.into_iter()), || (self.moved)(value, device)).0
    }

    /// Returns the value with one tensor in the places of all.
    pub(crate) fn hollow(&self, value: M, tensors: &[Tensor]) -> M {
        let Some(first) = tensors.first() else { return value };
        self.replace(value, vec![first.clone(); tensors.len()])
    }

    /// Returns a hash of everything about the value but its tensors.
    pub(crate) fn structure(&self, value: &M) -> u64 {
        struct Hashed(FxHasher);
        impl Write for Hashed {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.write(text.as_bytes());
                Ok(())
            }
        }
        let mut hashed = Hashed(FxHasher::default());
        // Writing to a hash cannot fail.
        let (_written, _) = traverse(Traversal::Hide, || write!(hashed, "{value:?}"));
        hashed.0.finish()
    }

    /// Does for these what [`Leaves::new`] takes, as a part of the traversal of a larger value.
    pub(crate) fn visit_within(&self, value: &M) {
        (self.visit)(value);
    }

    /// See [`Leaves::visit_within`].
    pub(crate) fn move_within(&self, value: M, device: Device) -> M {
        (self.moved)(value, device)
    }
}
