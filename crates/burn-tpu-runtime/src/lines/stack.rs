//! A captured stack.

use super::Resolver;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::thread::Thread;

/// The stack of a thread, which has not been resolved to lines. A clone is the same stack.
#[derive(Clone)]
pub(crate) struct Stack(Arc<Captured>);

struct Captured {
    /// The address of each frame, innermost first.
    frames: Box<[usize]>,
    thread: Thread,
}

impl Stack {
    /// Captures the calling thread's stack.
    pub(crate) fn capture() -> Self {
        let mut frames = Vec::new();
        backtrace::trace(|frame| {
            frames.push(frame.ip().addr());
            true
        });
        Self(Arc::new(Captured { frames: frames.into(), thread: std::thread::current() }))
    }

    /// Returns the address of each frame, innermost first.
    pub(super) fn frames(&self) -> &[usize] {
        &self.0.frames
    }

    pub(super) fn thread(&self) -> &Thread {
        &self.0.thread
    }

    /// Returns a number that no other stack has while this one is kept.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns a hash of the frames, which is the same for each op that the same calls record.
    pub(super) fn hash_of_frames(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.0.frames.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the innermost frame in a user's crate, such as `src/train.rs:41 in app::step`. Without one it is the name of
    /// the thread. The line number is missing if the binary has no debug information.
    pub(crate) fn line(&self) -> String {
        Resolver::default().line(self)
    }
}

/// Returns a thread's name for a message.
pub(crate) fn name_of(thread: &Thread) -> String {
    format!("on the thread {}", thread.name().unwrap_or("without a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loop of the thread is the standard library's, and the function is this library's.
    #[test]
    fn a_stack_without_a_users_frame_names_its_thread() {
        let named = std::thread::Builder::new().name("loader".into());
        let thread = named.spawn(Stack::capture).expect("a thread").join().expect("no panic");
        assert_eq!(thread.line(), "on the thread loader");
    }
}
