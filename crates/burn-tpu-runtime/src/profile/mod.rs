//! Profiles: what host and device did, and when, with the names of Burn ops and lines of source.
//!
//! Owns: the one profile that a process may have running, its data ([`session`]), the lines of its rows
//! ([`lines`]), and the planes made of that ([`planes`]). The crate `burn-tpu-profile` writes the files. May not know: why
//! programs run, engines beyond whether a plugin has a profiler.
//!
//! While no profile is running, a place that could report something reads one atomic flag and does nothing else.

mod lines;
mod planes;
mod program;
mod session;
mod steps;

pub(crate) use program::ProgramOps;
pub(crate) use session::{Phase, Session, active, is_active, span};
pub(crate) use steps::{ProfiledDevice, StepProfiler};

use crate::Device;
use crate::error::{Result, TpuError};
use burn_tpu_pjrt::{Plugin, Profiler};
use burn_tpu_profile::{ProfileError, ProfileFiles, ProfileFolder, ProfileReport};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A profile that has ended: its summary, and where its files are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The costliest rows, and the shares of device, host and idle time.
    pub report: ProfileReport,
    /// The files for TensorBoard, XProf and Perfetto.
    pub files: ProfileFiles,
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        writeln!(f, "\nXProf, TensorBoard: {}", self.files.xspace.display())?;
        writeln!(f, "Perfetto:           {}", self.files.trace.display())
    }
}

/// A profile that is running. A drop ends it without writing anything.
pub(crate) struct RunningProfile {
    session: Arc<Session>,
    plugin: Option<Profiler>,
}

/// `tensorflow.ProfileOptions`, as JAX sets them: version (field 5) 1, host tracer level (2) 2, device tracer level (3) 1,
/// and the compiled programs (7).
const PLUGIN_OPTIONS: [u8; 8] = [5 << 3, 1, 2 << 3, 2, 3 << 3, 1, 7 << 3, 1];

impl RunningProfile {
    /// Starts the process's profile, of a device whose programs this plugin runs.
    pub(crate) fn start(device: Device, plugin: Option<Plugin>) -> Result<Self> {
        let session = Session::start(device).ok_or(TpuError::ProfileRunning)?;
        // From here on, a drop ends the session.
        let mut running = Self { session, plugin: None };
        if let Some(plugin) = plugin {
            let profiler = Profiler::new(plugin, &PLUGIN_OPTIONS).map_err(TpuError::pjrt("creating a profiler"))?;
            running.plugin = profiler;
            if let Some(profiler) = &mut running.plugin {
                profiler.start().map_err(TpuError::pjrt("starting the profiler"))?;
            }
        }
        Ok(running)
    }

    /// Ends the profile and writes its files. The device has finished what it was given.
    pub(crate) fn finish(mut self, folder: &Path) -> Result<Profile> {
        let mut collected = self.session.end();
        let plugin = match &mut self.plugin {
            None => Vec::new(),
            Some(profiler) => {
                let bytes = profiler.stop().and_then(|()| profiler.collect());
                bytes.map_err(TpuError::pjrt("collecting a profile"))?
            }
        };
        let host = host_name();
        let own = planes::space(&mut collected, &host, self.plugin.is_none());
        let (files, space) = ProfileFolder::new_run(folder).write(&host, &plugin, &own).map_err(unwritten)?;
        Ok(Profile { report: ProfileReport::of(&space), files })
    }
}

impl Drop for RunningProfile {
    fn drop(&mut self) {
        self.session.end();
    }
}

fn unwritten(error: ProfileError) -> TpuError {
    TpuError::Profile { source: Arc::new(error) }
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "host".to_owned())
}
