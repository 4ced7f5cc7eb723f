//! Warnings of what costs minutes, or runs elsewhere than was asked for: a person sees them without a `tracing` subscriber.
//!
//! Owns: which of them are printed. May not know: what they are about.

use std::fmt::Display;
use std::io::Write;
use tracing::subscriber::NoSubscriber;

/// The variable that silences the printed lines.
const VARIABLE: &str = "BURN_TPU_WARNINGS";

/// Warns by an event, and by a line on standard error if the program listens to no events.
pub(crate) fn warn(message: impl Display) {
    tracing::warn!("{message}");
    print("warning", &message);
}

/// Reports an error by an event, and by a line on standard error if the program listens to no events.
pub(crate) fn error(message: impl Display) {
    tracing::error!("{message}");
    print("error", &message);
}

fn print(kind: &str, message: &dyn Display) {
    let is_heard = tracing::dispatcher::get_default(|dispatch| !dispatch.is::<NoSubscriber>());
    let is_silenced = std::env::var(VARIABLE).is_ok_and(|value| value == "0");
    if !is_heard && !is_silenced {
        // There is no one to tell that standard error is closed.
        let _ = writeln!(std::io::stderr(), "burn-tpu: {kind}: {message} ({VARIABLE}=0 silences these lines)");
    }
}
