//! Profiles as files: what ran when, on the devices and on the host.
//!
//! A profile is an XSpace, the message that TensorBoard, XProf and JAX use: planes (a device or a host) of lines (a queue
//! or a thread) of events. This crate owns the messages ([`xspace`]), their construction ([`PlaneBuilder`]), the folder in
//! which XProf looks for them ([`ProfileFolder`]), the same events as a trace that Perfetto opens ([`chrome`]), and the
//! summary that `burn-tpu profile` prints ([`ProfileReport`]).
//!
//! It may not know where events come from: plugins, recording, programs.
//!
//! ```
//! use burn_tpu_profile::{HOST_PLANE, PlaneBuilder, ProfileReport, Stat, names};
//! let mut host = PlaneBuilder::new(HOST_PLANE);
//! let line = host.line(1, "main");
//! host.event(line, "float_matmul", 2_000..5_000, [(names::PHASE, Stat::text("record"))]);
//! let space = burn_tpu_profile::xspace::XSpace { planes: vec![host.finish()], ..Default::default() };
//! assert_eq!(ProfileReport::of(&space).phases[0].time.as_nanos(), 3_000);
//! ```
#![forbid(unsafe_code)]

pub mod chrome;
mod error;
mod folder;
mod hlo;
mod intervals;
mod merge;
mod plane;
mod report;
mod view;
pub mod xspace;

pub use error::ProfileError;
pub use folder::{ProfileFiles, ProfileFolder, read};
pub use plane::{PlaneBuilder, Stat};
pub use report::{OpCost, PhaseCost, ProfileReport};

/// The name that XProf requires of the plane of a host's threads.
pub const HOST_PLANE: &str = "/host:CPU";

/// What the name of every plane of a device begins with.
pub const DEVICE_PREFIX: &str = "/device:";

/// What the name of a plane begins with that is no TPU and no GPU for XProf. Its trace viewer shows such planes.
pub const CUSTOM_DEVICE_PREFIX: &str = "/device:CUSTOM:";

/// The names of the statistics of events.
pub mod names {
    /// What the host did: `record`, `compile` and so on. Only host events of burn-tpu have it.
    pub const PHASE: &str = "phase";
    /// The Burn ops of an event, with their counts if there are several: `float_matmul 37, float_add 12`.
    pub const BURN_OPS: &str = "burn_ops";
    /// The lines of source that recorded the ops. XProf shows it as the source of an op.
    pub const SOURCE: &str = "source";
    /// The modules in which the ops were recorded, outermost first: `Gpt/Block/Linear`.
    pub const MODULE: &str = "module";
    /// The framework op of an event, the name under which XProf counts it.
    pub const FRAMEWORK_OP: &str = "tf_op";
    /// The name of an HLO instruction.
    pub const HLO_OP: &str = "hlo_op";
    /// The number of the program that an instruction belongs to.
    pub const PROGRAM: &str = "program_id";
    /// Of a host's plane: when the profile began, in nanoseconds since the UNIX epoch.
    pub const BEGIN_NS: &str = "profile_start_time";
    /// Of a host's plane: when the profile ended, in nanoseconds since the UNIX epoch.
    pub const END_NS: &str = "profile_stop_time";
}

/// The phase of an event in which the host waits and does no work.
pub const WAIT: &str = "wait";

/// The phase of an event in which the host works for the profile itself.
pub const PROFILER: &str = "profiler";
