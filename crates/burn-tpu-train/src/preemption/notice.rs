//! What a run is told before its machine is taken away.

use signal_hook::low_level::signal_name;
use std::fmt;
use std::time::SystemTime;

/// The request that a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Who asks.
    pub cause: Cause,
    /// When it was heard.
    pub time: SystemTime,
}

/// Who asks a run to end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A signal to this process: SIGTERM or SIGINT.
    Signal {
        /// Its number.
        signal: i32,
    },
    /// The cloud takes a Spot machine back.
    Preempted,
    /// The machine's host is maintained, and the machine ends.
    Maintenance {
        /// The event's name.
        event: String,
    },
    /// Another process of the group has heard a notice.
    Group {
        /// Its number and what it heard.
        reason: String,
    },
}

impl Notice {
    pub(super) fn now(cause: Cause) -> Self {
        Self { cause, time: SystemTime::now() }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Signal { signal } => match signal_name(*signal) {
                Some(name) => write!(f, "{name} was received"),
                None => write!(f, "signal {signal} was received"),
            },
            Cause::Preempted => f.write_str("the machine is preempted"),
            Cause::Maintenance { event } => write!(f, "the machine's host is maintained ({event})"),
            Cause::Group { reason } => f.write_str(reason),
        }
    }
}
